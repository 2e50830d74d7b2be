use std::time::Duration;

use leasehold_testing::PrivateRedis;
use redis::AsyncCommands;

#[tokio::test]
async fn private_redis_restarts_empty() {
    let mut server = PrivateRedis::start().unwrap();
    let mut client = server.connect().await.unwrap();
    client.set::<_, _, ()>("a", "1").await.unwrap();
    assert_eq!(client.get::<_, Option<String>>("a").await.unwrap().as_deref(), Some("1"));
    server.flush().await.unwrap();
    assert_eq!(client.get::<_, Option<String>>("a").await.unwrap(), None);
    client.set::<_, _, ()>("a", "2").await.unwrap();
    server.kill().unwrap();
    assert!(client.get::<_, Option<String>>("a").await.is_err());
    server.restart().unwrap();
    let mut client = server.connect().await.unwrap();
    assert_eq!(client.get::<_, Option<String>>("a").await.unwrap(), None, "killed: forgotten");
    server.stop().unwrap();
    assert!(server.connect().await.is_err());
}

#[tokio::test]
async fn frozen_redis_responds_when_thawed() {
    let mut server = PrivateRedis::start().unwrap();
    let mut client = server.connect().await.unwrap();
    client.set::<_, _, ()>("a", "1").await.unwrap();
    server.freeze().unwrap();
    // The signal goes through a pipe and a shell: until it arrives, Redis answers.
    let silent = async {
        while tokio::time::timeout(Duration::from_millis(200), client.get::<_, Option<String>>("a"))
            .await
            .is_ok_and(|answer| answer.is_ok())
        {}
    };
    tokio::time::timeout(Duration::from_secs(60), silent).await.unwrap();
    server.thaw().unwrap();
    let mut client = server.connect().await.unwrap();
    assert_eq!(client.get::<_, Option<String>>("a").await.unwrap().as_deref(), Some("1"));
    // Dropped while frozen: it must still end.
    server.freeze().unwrap();
}
