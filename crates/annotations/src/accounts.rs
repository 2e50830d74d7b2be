//! Users, their tokens, and the sessions of their browsers.
//!
//! # Invariants
//! - Only hashes of tokens are stored: a reader of the database cannot act as a user.
//! - A browser that logged in has a session of its own, never the token. Logging out ends the session, in the
//!   database too; the token stays valid for other devices and programs. A session ends with its token.
//! - A name stays reserved for its user, after a rename and after the account was deleted.
//! - Renaming a user or deleting an account is one row and one job; what other users see changes with
//!   that commit.

use leasehold::link::Param;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::id::Token;
use crate::model::User;
use crate::service::Annotations;

impl Annotations {
    /// Creates an account. The token is shown once.
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

    /// Adds a token to an account, such as for a program.
    pub async fn new_token(&self, name: &str) -> Result<Token, Refused> {
        let token = Token::random();
        let sql = "insert into annotations.token (hash, user_id) \
                   select $1, u.id from annotations.user_account u \
                   where u.name = $2 and u.deleted_at is null returning 1";
        self.user_row(sql, &[(&token.hash(), Type::BYTEA), (&name, Type::TEXT)]).await?;
        Ok(token)
    }

    /// Replaces all tokens of an account with a new one. The old ones are revoked, and the sessions that were
    /// opened with them end. Also returns how many there were.
    pub async fn only_token(&self, name: &str) -> Result<(Token, i64), Refused> {
        let token = Token::random();
        // The `delete` does not see what the same statement inserts.
        let sql = "with made as (\
                       insert into annotations.token (hash, user_id) \
                       select $1, u.id from annotations.user_account u \
                       where u.name = $2 and u.deleted_at is null returning user_id), \
                   gone as (\
                       delete from annotations.token t using made m \
                       where t.user_id = m.user_id returning 1) \
                   select (select count(*) from gone) from made";
        let row = self.user_row(sql, &[(&token.hash(), Type::BYTEA), (&name, Type::TEXT)]).await?;
        Ok((token, row.get(0)))
    }

    /// Returns the owner of a token; `None`: it is unknown, or revoked.
    pub async fn who(&self, token: &Token) -> Result<Option<User>, Refused> {
        let sql = "select u.id, u.name, u.display_name from annotations.token t \
                   join annotations.user_account u on u.id = t.user_id \
                   where t.hash = $1 and u.deleted_at is null";
        let rows = self.rows(sql, &[(&token.hash(), Type::BYTEA)]).await?;
        Ok(rows.first().map(user))
    }

    /// Opens a session for a browser whose user showed this token. Returns the text for its cookie; `None`:
    /// the token is unknown, or revoked.
    pub async fn log_in(&self, token: &Token) -> Result<Option<Token>, Refused> {
        let session = Token::random();
        let sql = "select id from annotations.log_in($1, $2)";
        let params = [(&token.hash() as _, Type::BYTEA), (&session.hash() as _, Type::BYTEA)];
        let rows = self.rows(sql, &params).await?;
        Ok(rows.first().map(|_| session))
    }

    /// Returns the user of a session; `None`: it has ended.
    pub async fn session_user(&self, session: &Token) -> Result<Option<User>, Refused> {
        let sql = "select u.id, u.name, u.display_name from annotations.session s \
                   join annotations.token t on t.hash = s.token_hash \
                   join annotations.user_account u on u.id = t.user_id \
                   where s.hash = $1 and s.expires_at > statement_timestamp() \
                     and u.deleted_at is null";
        let rows = self.rows(sql, &[(&session.hash(), Type::BYTEA)]).await?;
        Ok(rows.first().map(user))
    }

    /// Ends a session. One that has ended is no error.
    pub async fn log_out(&self, session: &Token) -> Result<(), Refused> {
        let sql = "delete from annotations.session where hash = $1";
        self.rows(sql, &[(&session.hash(), Type::BYTEA)]).await?;
        Ok(())
    }

    pub async fn user(&self, name: &str) -> Result<User, Refused> {
        let sql = "select id, name, display_name from annotations.user_account \
                   where name = $1 and deleted_at is null";
        Ok(user(&self.user_row(sql, &[(&name, Type::TEXT)]).await?))
    }

    /// Returns the row of a statement about an existing user.
    async fn user_row(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, Refused> {
        let rows = self.rows(sql, params).await?;
        rows.into_iter().next().ok_or(Refused::NoSuchPerson)
    }

    /// Renames a user. Returns the id of the bulk operation that updates the index; `None` if the name
    /// is the same.
    pub async fn rename_user(&self, who: i64, name: &str) -> Result<Option<i64>, Refused> {
        check_name(name)?;
        let sql = "select annotations.rename_user($1, $2)";
        let row = self.row(sql, &[(&who, Type::INT8), (&name, Type::TEXT)]).await?;
        Ok(row.get(0))
    }

    /// Changes what is not `None`, all or nothing.
    pub async fn change_user(
        &self,
        who: i64,
        name: Option<&str>,
        display_name: Option<&str>,
    ) -> Result<(), Refused> {
        name.map_or(Ok(()), check_name)?;
        display_name.map_or(Ok(()), check_display_name)?;
        let sql = "select annotations.change_user($1, $2, $3)";
        let params =
            [(&who as _, Type::INT8), (&name as _, Type::TEXT), (&display_name as _, Type::TEXT)];
        self.row(sql, &params).await?;
        Ok(())
    }

    /// Deletes an account: its notes are hidden at once, and a job deletes them.
    pub async fn delete_user(&self, who: i64) -> Result<i64, Refused> {
        let row = self.row("select annotations.delete_user($1)", &[(&who, Type::INT8)]).await?;
        Ok(row.get(0))
    }
}

fn user(row: &Row) -> User {
    User { id: row.get(0), name: row.get(1), display_name: row.get(2) }
}

/// Accepts names of 2 to 30 characters: a-z, 0-9, dot, dash and underscore.
pub fn check_name(name: &str) -> Result<(), Refused> {
    let mut bytes = name.bytes();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let begins = bytes.next().is_some_and(plain);
    if begins && (2..=30).contains(&name.len()) && bytes.all(|b| plain(b) || b"_.-".contains(&b)) {
        return Ok(());
    }
    Err(Refused::malformed(
        "a name has 2 to 30 characters: a-z, 0-9, dot, dash and underscore, a letter or digit first",
    ))
}

fn check_display_name(name: &str) -> Result<(), Refused> {
    if name.chars().count() <= 80 && !name.contains('\0') {
        return Ok(());
    }
    Err(Refused::malformed("a display name may have 80 characters, and no NUL"))
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn check_name_accepts_only_plain_names() {
        for good in ["ab", "sophiathefirst", "a.b-c_d", "42"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a", "-ab", "Ab", "a b", "ä4", "a\u{202e}b", "a".repeat(31).as_str()] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
