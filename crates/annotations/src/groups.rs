//! Groups: their members, invitations and owners.
//!
//! # Invariants
//! - Only the user or an operator makes a user a member of a group: an owner invites, and the user
//!   joins, declines, or blocks the owner.
//! - A group with other members has an owner who is a member, as long as the owner has an account.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::accounts::check_name;
use crate::error::Refused;
use crate::id::random_group;
use crate::model::{Group, Invitation, WORLD};
use crate::service::Annotations;

impl Annotations {
    /// Returns the groups of a user, the public one first.
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
            return Err(Refused::malformed("the name of a group must have 1 to 80 characters"));
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

    /// Adds a member on behalf of an operator.
    pub async fn let_in(&self, who: i64, group: &str) -> Result<(), Refused> {
        let sql = "select annotations.let_in($1, $2)";
        self.rows(sql, &[(&who, Type::INT8), (&group, Type::TEXT)]).await?;
        Ok(())
    }

    /// Invites a user into a group that `who` owns. The invited user decides.
    pub async fn invite(&self, who: i64, group: &str, name: &str) -> Result<(), Refused> {
        self.about(Some(who), "select annotations.invite($1, $2, $3)", group, name).await
    }

    /// Returns a user's open invitations, the newest first. There are at most 100.
    pub async fn invitations(&self, who: i64) -> Result<Vec<Invitation>, Refused> {
        let sql = "select i.group_id, g.name, u.name, i.invited_at \
                   from annotations.invitation i \
                   join annotations.user_group g on g.id = i.group_id and g.moved_to is null \
                   join annotations.user_account u on u.id = i.invited_by \
                   where i.user_id = $1 and i.declined_at is null \
                   order by i.invited_at desc, i.group_id limit 100";
        let rows = self.rows(sql, &[(&who, Type::INT8)]).await?;
        let invitation = |row: &Row| Invitation {
            group: row.get(0),
            group_name: row.get(1),
            by: row.get(2),
            at: row.get(3),
        };
        Ok(rows.iter().map(invitation).collect())
    }

    /// Declines an invitation. The group cannot invite again.
    pub async fn decline(&self, who: i64, group: &str) -> Result<(), Refused> {
        let sql = "select annotations.decline($1, $2)";
        self.rows(sql, &[(&who, Type::INT8), (&group, Type::TEXT)]).await?;
        Ok(())
    }

    /// Blocks invitations from a user, and deletes those that have arrived.
    pub async fn block_user(&self, who: i64, name: &str) -> Result<(), Refused> {
        let sql = "select annotations.block_user($1, $2)";
        self.rows(sql, &[(&who, Type::INT8), (&name, Type::TEXT)]).await?;
        Ok(())
    }

    /// Allows invitations from a user again. A user who is not blocked is no error; an impossible name
    /// is.
    pub async fn unblock_user(&self, who: i64, name: &str) -> Result<(), Refused> {
        check_name(name).map_err(|_| Refused::NoSuchPerson)?;
        let sql = "delete from annotations.blocked b using annotations.user_account u \
                   where b.user_id = $1 and b.blocked_id = u.id and u.name = $2";
        self.rows(sql, &[(&who, Type::INT8), (&name, Type::TEXT)]).await?;
        Ok(())
    }

    /// Returns the names of the users that `who` has blocked. There are at most 1000.
    pub async fn blocked(&self, who: i64) -> Result<Vec<String>, Refused> {
        let sql = "select u.name from annotations.blocked b \
                   join annotations.user_account u on u.id = b.blocked_id and u.deleted_at is null \
                   where b.user_id = $1 order by u.name limit 1000";
        let rows = self.rows(sql, &[(&who, Type::INT8)]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Leaves a group. Not being a member is no error. An owner must hand the group over first.
    pub async fn leave_group(&self, who: i64, group: &str) -> Result<(), Refused> {
        let sql = "select annotations.leave_group($1, $2)";
        self.rows(sql, &[(&who, Type::INT8), (&group, Type::TEXT)]).await?;
        Ok(())
    }

    /// Removes a member, or withdraws an invitation; `who` owns the group. `None`: an operator.
    pub async fn remove_member(
        &self,
        who: Option<i64>,
        group: &str,
        name: &str,
    ) -> Result<(), Refused> {
        self.about(who, "select annotations.remove_member($1, $2, $3)", group, name).await
    }

    /// Makes a member the owner of a group; `who` is the owner so far. `None`: an operator.
    pub async fn hand_over(
        &self,
        who: Option<i64>,
        group: &str,
        name: &str,
    ) -> Result<(), Refused> {
        self.about(who, "select annotations.hand_over($1, $2, $3)", group, name).await
    }

    /// Runs a statement about a group and a user.
    async fn about(
        &self,
        who: Option<i64>,
        sql: &str,
        group: &str,
        name: &str,
    ) -> Result<(), Refused> {
        let params = [(&who as _, Type::INT8), (&group as _, Type::TEXT), (&name as _, Type::TEXT)];
        self.rows(sql, &params).await?;
        Ok(())
    }

    /// Moves a group into another; `who` owns both and is a member of both. `None`: an operator.
    pub async fn move_group(
        &self,
        who: Option<i64>,
        group: &str,
        to: &str,
    ) -> Result<i64, Refused> {
        let sql = "select annotations.move_group($1, $2, $3)";
        let params = [(&who as _, Type::INT8), (&group as _, Type::TEXT), (&to as _, Type::TEXT)];
        let row = self.row(sql, &params).await?;
        Ok(row.get(0))
    }
}
