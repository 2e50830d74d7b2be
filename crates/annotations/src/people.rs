//! People, their tokens, and the groups that they read in.
//!
//! # What is true
//! - Only hashes of tokens are kept: whoever reads the database cannot act as anybody.
//! - A name that somebody had is nobody else's, not after a rename and not after they left.
//! - Renaming or leaving is one row and one job; what others see changes with that commit.

use leasehold::link::Param;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::id::{Token, random_group};
use crate::model::{Group, User, WORLD};
use crate::service::Annotations;

impl Annotations {
    /// A new person. The token is shown once.
    pub async fn sign_up(&self, name: &str, display_name: &str) -> Result<(User, Token), Refused> {
        check_name(name)?;
        check_display_name(display_name)?;
        let token = Token::random();
        let row = self
            .row(
                "select annotations.sign_up($1, $2, $3)",
                &[(&name, Type::TEXT), (&display_name, Type::TEXT), (&token.hash(), Type::BYTEA)],
            )
            .await?;
        let user =
            User { id: row.get(0), name: name.to_owned(), display_name: display_name.to_owned() };
        Ok((user, token))
    }

    /// One more token for somebody, such as a program of theirs.
    pub async fn new_token(&self, name: &str) -> Result<Token, Refused> {
        let token = Token::random();
        let sql = "insert into annotations.token (hash, user_id) \
                   select $1, u.id from annotations.user_account u \
                   where u.name = $2 and u.deleted_at is null returning 1";
        self.person(sql, &[(&token.hash(), Type::BYTEA), (&name, Type::TEXT)]).await?;
        Ok(token)
    }

    /// A new token for somebody in place of all that they have: those are void, and browsers that
    /// were logged in with them are logged out. Also gives how many there were.
    pub async fn only_token(&self, name: &str) -> Result<(Token, i64), Refused> {
        let token = Token::random();
        // The deletion does not see what the same statement inserts.
        let sql = "with made as (\
                       insert into annotations.token (hash, user_id) \
                       select $1, u.id from annotations.user_account u \
                       where u.name = $2 and u.deleted_at is null returning user_id), \
                   gone as (\
                       delete from annotations.token t using made m \
                       where t.user_id = m.user_id returning 1) \
                   select (select count(*) from gone) from made";
        let row = self.person(sql, &[(&token.hash(), Type::BYTEA), (&name, Type::TEXT)]).await?;
        Ok((token, row.get(0)))
    }

    /// Whose token it is; `None`: nobody's, or not any more.
    pub async fn who(&self, token: &Token) -> Result<Option<User>, Refused> {
        let sql = "select u.id, u.name, u.display_name from annotations.token t \
                   join annotations.user_account u on u.id = t.user_id \
                   where t.hash = $1 and u.deleted_at is null";
        let rows = self.rows(sql, &[(&token.hash(), Type::BYTEA)]).await?;
        Ok(rows.first().map(user))
    }

    /// The token is nobody's from now on.
    pub async fn forget_token(&self, token: &Token) -> Result<(), Refused> {
        let sql = "delete from annotations.token where hash = $1";
        self.rows(sql, &[(&token.hash(), Type::BYTEA)]).await?;
        Ok(())
    }

    pub async fn user(&self, name: &str) -> Result<User, Refused> {
        let sql = "select id, name, display_name from annotations.user_account \
                   where name = $1 and deleted_at is null";
        Ok(user(&self.person(sql, &[(&name, Type::TEXT)]).await?))
    }

    /// The row that a statement gives about somebody who is there.
    async fn person(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Refused> {
        let rows = self.rows(sql, params).await?;
        rows.into_iter().next().ok_or(Refused::NoSuchPerson)
    }

    /// Gives somebody another name. The number is that of the work which tells the index; `None`:
    /// it was the name already.
    pub async fn rename_user(&self, who: i64, name: &str) -> Result<Option<i64>, Refused> {
        check_name(name)?;
        let sql = "select annotations.rename_user($1, $2)";
        let row = self.row(sql, &[(&who, Type::INT8), (&name, Type::TEXT)]).await?;
        self.wake().await;
        Ok(row.get(0))
    }

    pub async fn set_display_name(&self, who: i64, name: &str) -> Result<(), Refused> {
        check_display_name(name)?;
        let sql = "update annotations.user_account set display_name = $2 \
                   where id = $1 and deleted_at is null returning 1";
        self.person(sql, &[(&who, Type::INT8), (&name, Type::TEXT)]).await?;
        Ok(())
    }

    /// Somebody leaves: nothing of theirs is seen any more, and all of it is removed by a job.
    pub async fn delete_user(&self, who: i64) -> Result<i64, Refused> {
        let row = self.row("select annotations.delete_user($1)", &[(&who, Type::INT8)]).await?;
        self.wake().await;
        Ok(row.get(0))
    }

    /// The groups of somebody, everybody's first.
    pub async fn groups(&self, who: Option<i64>) -> Result<Vec<Group>, Refused> {
        let sql = "select g.id, g.name, g.open, coalesce(g.owner_id = $1, false) \
                   from (select $2 as id union \
                         select m.group_id from annotations.membership m where m.user_id = $1) o \
                   join annotations.user_group g on g.id = o.id \
                   where g.moved_to is null \
                   order by g.id <> $2, lower(g.name), g.id";
        let rows = self.rows(sql, &[(&who, Type::INT8), (&WORLD, Type::TEXT)]).await?;
        Ok(rows
            .iter()
            .map(|row| Group {
                id: row.get(0),
                name: row.get(1),
                open: row.get(2),
                own: row.get(3),
            })
            .collect())
    }

    pub async fn make_group(&self, who: i64, name: &str, open: bool) -> Result<Group, Refused> {
        let length = name.chars().count();
        if !(1..=80).contains(&length) || name.trim().is_empty() || name.contains('\0') {
            return Err(Refused::malformed("a group's name has 1 to 80 characters"));
        }
        let id = random_group();
        self.rows(
            "select annotations.make_group($1, $2, $3, $4)",
            &[(&who, Type::INT8), (&id, Type::TEXT), (&name, Type::TEXT), (&open, Type::BOOL)],
        )
        .await?;
        Ok(Group { id, name: name.to_owned(), open, own: true })
    }

    pub async fn join_group(&self, who: i64, group: &str) -> Result<(), Refused> {
        let sql = "select annotations.join_group($1, $2)";
        self.rows(sql, &[(&who, Type::INT8), (&group, Type::TEXT)]).await?;
        Ok(())
    }

    /// Lets somebody into a group of one's own.
    pub async fn add_member(&self, who: i64, group: &str, name: &str) -> Result<(), Refused> {
        let sql = "select annotations.add_member($1, $2, $3)";
        let params = [(&who as _, Type::INT8), (&group as _, Type::TEXT), (&name as _, Type::TEXT)];
        self.rows(sql, &params).await?;
        Ok(())
    }

    /// Lets somebody into a group, by whoever runs the service.
    pub async fn let_in(&self, who: i64, group: &str) -> Result<(), Refused> {
        let sql = "select annotations.let_in($1, $2)";
        self.rows(sql, &[(&who, Type::INT8), (&group, Type::TEXT)]).await?;
        Ok(())
    }

    /// Leaves a group. Leaving where one is not is no error.
    pub async fn leave_group(&self, who: i64, group: &str) -> Result<(), Refused> {
        let sql = "delete from annotations.membership where user_id = $1 and group_id = $2";
        self.rows(sql, &[(&who, Type::INT8), (&group, Type::TEXT)]).await?;
        Ok(())
    }

    /// Moves a group into another; `who` owns both and is in both. `None`: an operator.
    pub async fn move_group(
        &self,
        who: Option<i64>,
        group: &str,
        to: &str,
    ) -> Result<i64, Refused> {
        let sql = "select annotations.move_group($1, $2, $3)";
        let params = [(&who as _, Type::INT8), (&group as _, Type::TEXT), (&to as _, Type::TEXT)];
        let row = self.row(sql, &params).await?;
        self.wake().await;
        Ok(row.get(0))
    }

    /// Work in pieces begins at once. A hint: when it fails, the workers' poll finds the job.
    pub(crate) async fn wake(&self) {
        if let Err(error) = self.engine().wake(crate::bulk::QUEUE).await {
            tracing::debug!(%error, "nobody was woken");
        }
    }
}

fn user(row: &Row) -> User {
    User { id: row.get(0), name: row.get(1), display_name: row.get(2) }
}

/// 2 to 30 of a-z, 0-9, dot, dash and underscore.
pub fn check_name(name: &str) -> Result<(), Refused> {
    let mut bytes = name.bytes();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins = bytes.next().is_some_and(plain);
    if begins && (2..=30).contains(&name.len()) && bytes.all(|b| plain(b) || b"_.-".contains(&b)) {
        return Ok(());
    }
    Err(Refused::malformed(
        "a name has 2 to 30 of a-z, 0-9, dot, dash and underscore, and begins with a letter or digit",
    ))
}

fn check_display_name(name: &str) -> Result<(), Refused> {
    if name.chars().count() <= 80 && !name.contains('\0') {
        return Ok(());
    }
    Err(Refused::malformed("a display name has up to 80 characters, and no NUL"))
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_are_plain() {
        for good in ["ab", "sophiathefirst", "a.b-c_d", "42"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a", "-ab", "Ab", "a b", "ä4", "a\u{202e}b", "a".repeat(31).as_str()] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
