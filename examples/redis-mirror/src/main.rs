use std::time::Duration;

use leasehold::Leasehold;
use leasehold::mirror::Mirror;
use leasehold::redis::RedisHash;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leasehold = Leasehold::connect_and_migrate(&std::env::var("DATABASE_URL")?).await?;
    let mirror = Mirror::new("books.redis", "books")
        .key("isbn")
        // The document of a book in Redis. It may join other tables; a book that it leaves out is
        // deleted from Redis.
        .document(
            "select b.isbn, b.version, jsonb_build_object('title', b.title, 'author', a.name)
               from books b join authors a on a.id = b.author
              where b.isbn = any($1)",
        )
        // Checked this long after a change, by which time it has usually been written.
        .verify_after(Duration::from_secs(1))
        .target(RedisHash::new(&std::env::var("REDIS_URL")?, "books")?);
    // Adds the column `version`, the triggers that raise it and enqueue jobs, and an index in the
    // order of the store, where they are missing.
    mirror.install(&mut *leasehold.pool().get().await?).await?;
    leasehold.worker().mirror(mirror).run_until_signal().await?;
    Ok(())
}
