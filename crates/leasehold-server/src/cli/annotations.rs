//! `leasehold annotations`: the people and groups of the annotation service.

use std::process::ExitCode;

use annotations::{Annotations, Settings};
use clap::Subcommand;
use serde_json::json;

use super::common::Common;
use crate::exit::Failure;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Makes people, gives them tokens, renames and deletes them
    #[command(subcommand)]
    Users(Users),
    /// Makes groups and moves them
    #[command(subcommand)]
    Groups(Groups),
}

#[derive(Subcommand, Debug)]
pub enum Users {
    /// Makes an account and prints its token. It is shown only now
    Add {
        /// 2 to 30 of a-z, 0-9, dot, dash and underscore
        name: String,
        /// What people call them
        #[arg(long, default_value = "", value_name = "TEXT")]
        display_name: String,
    },
    /// Prints one more token for somebody
    Token {
        name: String,
        /// All the tokens that they had are void from now on, and their browsers are logged out: for
        /// one that was lost or seen by somebody
        #[arg(long)]
        revoke_others: bool,
    },
    /// Gives somebody another name; the search index follows by itself
    Rename { name: String, new_name: String },
    /// Deletes somebody with everything they wrote
    Delete {
        name: String,
        /// Does not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Subcommand, Debug)]
pub enum Groups {
    /// Makes a group and prints its id
    Add {
        /// What people call it
        name: String,
        /// Who owns it
        #[arg(long, value_name = "USER")]
        owner: String,
        /// Whoever knows its id may join
        #[arg(long)]
        open: bool,
    },
    /// Lets somebody into a group
    Join { group: String, user: String },
    /// Moves all notes of a group into another one; __world__ is everybody
    Move { group: String, to: String },
}

/// The service without its index: what people do here reaches the index through jobs. A statement may
/// take as long as --patience says.
pub async fn service(common: &Common) -> Result<Annotations, Failure> {
    let (engine, settings) = (common.engine().await?, Settings::default());
    Ok(Annotations::start_within(engine, None, settings, common.patience()).await?)
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let notes = service(common).await?;
    match command {
        Command::Users(command) => users(&notes, command, common).await?,
        Command::Groups(command) => groups(&notes, command, common).await?,
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
            out.note(format!("the {revoked} that {name} had before are void"));
        }
        Users::Rename { name, new_name } => {
            let user = notes.user(&name).await?;
            let work = notes.rename_user(user.id, &new_name).await?;
            let answer = json!({ "name": new_name, "work": work.map(|id| id.to_string()) });
            out.one("user", &answer, |_| format!("{name} is {new_name} now"))?;
            if let Some(work) = work {
                out.note(follow(work));
            }
        }
        Users::Delete { name, yes } => {
            let user = notes.user(&name).await?;
            if !yes {
                return Err(Failure::refused(format!(
                    "{name} and everything they wrote would be gone for good"
                ))
                .hint("say that you mean it: --yes"));
            }
            let work = notes.delete_user(user.id).await?;
            let answer = json!({ "name": name, "work": work.to_string() });
            out.one("user", &answer, |_| {
                format!("{name} is gone; a worker removes what they wrote")
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
            out.one("group", &answer, |_| format!("{user} reads in {group} now"))
        }
        Groups::Move { group, to } => {
            let work = notes.move_group(None, &group, &to).await?;
            let answer = json!({ "id": group, "to": to, "work": work.to_string() });
            out.one("group", &answer, |_| {
                format!("what was in {group} is read by the members of {to} from now on")
            })?;
            out.note(follow(work));
            Ok(())
        }
    }
}

/// How to see that the index has learnt it, too.
fn follow(work: i64) -> String {
    format!("the index follows: leasehold reindex --status {work} --watch")
}
