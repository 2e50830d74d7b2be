//! `leasehold annotations`: the users and groups of the annotation service.

use std::process::ExitCode;

use annotations::{Annotations, Settings};
use clap::Subcommand;
use serde_json::json;

use super::common::{Common, by};
use crate::exit::Failure;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Add, rename and delete users, and issue tokens
    #[command(subcommand)]
    Users(Users),
    /// Add and move groups, and change their members
    #[command(subcommand)]
    Groups(Groups),
    /// Change which search index belongs to this database
    #[command(subcommand)]
    Index(Index),
}

#[derive(Subcommand, Debug)]
pub enum Index {
    /// Forget the search index, so that the next `leasehold serve` can bring another one
    ///
    /// The full comparison fills the new index.
    Forget {
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Subcommand, Debug)]
pub enum Users {
    /// Add a user and print the token, which is shown only once
    Add {
        /// Name of the user: 2 to 30 of a-z, 0-9, dot, dash and underscore
        name: String,
        /// Show this name to other users
        #[arg(long, default_value = "", value_name = "TEXT")]
        display_name: String,
    },
    /// Print one more token for a user
    Token {
        /// Name of the user
        name: String,
        /// Revoke all earlier tokens of the user and end the sessions of the user's browsers, after a
        /// token was lost or leaked
        #[arg(long)]
        revoke_others: bool,
    },
    /// Rename a user; the search index follows by itself
    Rename {
        /// Name of the user
        name: String,
        /// New name of the user
        new_name: String,
    },
    /// Delete a user and all notes of that user
    Delete {
        /// Name of the user
        name: String,
        /// Skip the confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Subcommand, Debug)]
pub enum Groups {
    /// Add a group and print its id
    Add {
        /// Name of the group
        name: String,
        /// Make this user the owner
        #[arg(long, value_name = "USER")]
        owner: String,
        /// Let every user who knows its id join
        #[arg(long)]
        open: bool,
    },
    /// Add a user to a group
    Join {
        /// Id of the group
        group: String,
        /// Name of the user
        user: String,
    },
    /// Remove a user from a group, or withdraw an invitation
    RemoveMember {
        /// Id of the group
        group: String,
        /// Name of the user
        user: String,
    },
    /// Make a member of a group its owner
    HandOver {
        /// Id of the group
        group: String,
        /// Name of the new owner, who is a member
        user: String,
    },
    /// Move all notes of a group into another one; __world__ is public
    Move {
        /// Id of the group
        group: String,
        /// Id of the other group
        to: String,
    },
}

/// The service without its index: changes made here reach the index through jobs. --timeout is the
/// statement timeout.
pub async fn service(common: &Common) -> Result<Annotations, Failure> {
    let (engine, settings) = (common.engine().await?, Settings::default());
    Ok(Annotations::start_within(engine, None, settings, common.timeout()).await?)
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let notes = service(common).await?;
    match command {
        Command::Users(command) => users(&notes, command, common).await?,
        Command::Groups(command) => groups(&notes, command, common).await?,
        Command::Index(Index::Forget { yes }) => forget(&notes, yes, common).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn users(notes: &Annotations, command: Users, common: &Common) -> Result<(), Failure> {
    let out = common.out();
    match command {
        Users::Add { name, display_name } => {
            let (user, token) = notes.sign_up(&name, &display_name).await?;
            let answer = json!({ "name": user.name, "token": token.as_str() });
            out.one("user", &answer, |_| token.as_str().to_owned())?;
            out.note(format!("{name} logs in with this token; it is not shown again"));
        }
        Users::Token { name, revoke_others: false } => {
            let token = notes.new_token(&name).await?;
            let answer = json!({ "name": name, "token": token.as_str() });
            out.one("user", &answer, |_| token.as_str().to_owned())?;
        }
        Users::Token { name, revoke_others: true } => {
            let (token, revoked) = notes.only_token(&name).await?;
            let answer = json!({ "name": name, "token": token.as_str(), "revoked": revoked });
            out.one("user", &answer, |_| token.as_str().to_owned())?;
            out.note(format!("{revoked} earlier tokens of {name} are revoked"));
        }
        Users::Rename { name, new_name } => {
            let user = notes.user(&name).await?;
            let work = notes.rename_user(user.id, &new_name).await?;
            let answer = json!({ "name": new_name, "work": work.map(|id| id.to_string()) });
            out.one("user", &answer, |_| format!("user {name} is renamed to {new_name}"))?;
            if let Some(work) = work {
                out.note(follow(work));
            }
        }
        Users::Delete { name, yes } => {
            let user = notes.user(&name).await?;
            if !yes {
                return Err(Failure::refused(format!(
                    "this would delete user {name} and all notes of that user for good"
                ))
                .hint("add --yes to confirm"));
            }
            let work = notes.delete_user(user.id).await?;
            let answer = json!({ "name": name, "work": work.to_string() });
            out.one("user", &answer, |_| {
                format!("user {name} is deleted; a worker removes the notes")
            })?;
            out.note(follow(work));
        }
    }
    Ok(())
}

async fn groups(notes: &Annotations, command: Groups, common: &Common) -> Result<(), Failure> {
    let out = common.out();
    match command {
        Groups::Add { name, owner, open } => {
            let owner = notes.user(&owner).await?;
            let group = notes.make_group(owner.id, &name, open).await?;
            let answer = json!({ "id": group.id, "name": group.name, "open": group.open });
            out.one("group", &answer, |_| group.id.clone())
        }
        Groups::Join { group, user } => {
            let member = notes.user(&user).await?;
            notes.let_in(member.id, &group).await?;
            let answer = json!({ "id": group, "user": user });
            out.one("group", &answer, |_| format!("{user} is a member of group {group}"))
        }
        Groups::RemoveMember { group, user } => {
            notes.remove_member(None, &group, &user).await?;
            let answer = json!({ "id": group, "user": user });
            out.one("group", &answer, |_| format!("{user} is removed from group {group}"))
        }
        Groups::HandOver { group, user } => {
            notes.hand_over(None, &group, &user).await?;
            let answer = json!({ "id": group, "owner": user });
            out.one("group", &answer, |_| format!("{user} owns group {group}"))
        }
        Groups::Move { group, to } => {
            let work = notes.move_group(None, &group, &to).await?;
            let answer = json!({ "id": group, "to": to, "work": work.to_string() });
            out.one("group", &answer, |_| {
                format!("the notes of group {group} are moved to group {to}")
            })?;
            out.note(follow(work));
            Ok(())
        }
    }
}

async fn forget(notes: &Annotations, yes: bool, common: &Common) -> Result<(), Failure> {
    if !yes {
        return Err(Failure::refused(
            "searches would be incomplete until the next index has been compared with the notes",
        )
        .hint("add --yes to confirm"));
    }
    let former = notes.forget_index(&by(None)).await?;
    let answer = json!({ "former": former });
    common.out().one("index", &answer, |_| match &former {
        Some(location) => {
            format!("index {location} is forgotten; the next leasehold serve records its own")
        }
        None => "no index is recorded; the next leasehold serve records its own".to_owned(),
    })
}

/// Names the command that shows the progress of the index.
fn follow(work: i64) -> String {
    format!("a worker updates the index; follow it: leasehold reindex --status {work} --watch")
}
