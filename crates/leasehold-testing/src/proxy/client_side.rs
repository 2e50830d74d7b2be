//! From the client to the server: knows which statement is about to run.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::lane::{Direction, Lane};
use super::rule::AtStatement;
use super::rules::Rules;
use super::session::Session;
use super::wire::Head;

/// Forwards until the client or a rule ends the connection.
pub(super) async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    session: &Session,
    rules: &Rules,
) -> io::Result<()> {
    let lane = Lane { session, rules, direction: Direction::ToServer };
    let mut statements = Statements::default();
    let mut count = 0;
    let mut swallow = None;
    while let Some(head) = lane.next(&mut from).await? {
        let sql = statements.about_to_run(&head);
        for (rule, what) in sql.map(|sql| rules.at_statement(&sql)).unwrap_or_default() {
            match what {
                AtStatement::DropReply => session.doom_next(rule),
                AtStatement::CutBefore => {
                    rules.fire(rule);
                    return Ok(());
                }
                AtStatement::Blackhole => {
                    // Before the server gets the statement: it may be faster than we are.
                    session.swallow(Direction::ToClient, rule);
                    swallow = Some(rule);
                }
                AtStatement::Delay(by) => {
                    rules.fire(rule);
                    tokio::time::sleep(by).await;
                }
            }
        }
        if let Some((rule, by)) = rules.delay() {
            rules.fire(rule);
            tokio::time::sleep(by).await;
        }
        let asks = matches!(head.tag, b'Q' | b'S' | b'F');
        if asks {
            session.asked(head.tag == b'S');
        }
        lane.pass_on(&head, &mut from, &mut to).await?;
        // Only now: an Execute without its Sync would not be committed.
        if let Some(rule) = swallow.take_if(|_| asks) {
            session.swallow(Direction::ToServer, rule);
            rules.fire(rule);
        }
        if session.is_ready() {
            count += 1;
            if let Some(rule) = rules.at_client_message(count) {
                rules.fire(rule);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The texts of prepared statements and of portals bound to them.
#[derive(Default)]
struct Statements {
    parsed: HashMap<String, Arc<str>>,
    bound: HashMap<String, Arc<str>>,
}

impl Statements {
    /// Returns the text of the statement that this message runs, if it runs one.
    fn about_to_run(&mut self, head: &Head) -> Option<Arc<str>> {
        match head.tag {
            b'Q' => return Some(head.text(0, 0).into()),
            b'P' => {
                self.parsed.insert(head.text(0, 0), head.text(0, 1).into());
            }
            b'B' => {
                let sql = self.parsed.get(&head.text(0, 1)).cloned().unwrap_or_default();
                self.bound.insert(head.text(0, 0), sql);
            }
            b'E' => return self.bound.get(&head.text(0, 0)).cloned(),
            // Close: a statement or a portal.
            b'C' => {
                let closed = match head.body().first() {
                    Some(b'S') => &mut self.parsed,
                    _ => &mut self.bound,
                };
                closed.remove(&head.text(1, 0));
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Head {
        let mut bytes = vec![tag, 0, 0, 0, 0];
        bytes.extend_from_slice(body);
        Head { tag, bytes, rest: 0 }
    }

    #[test]
    fn named_statement_is_recognised_at_each_execution() {
        let mut statements = Statements::default();
        let mut run = |tag, body: &[u8]| statements.about_to_run(&message(tag, body));
        assert_eq!(run(b'P', b"s1\0select 1\0\0\0"), None);
        assert_eq!(run(b'P', b"s2\0select 2\0\0\0"), None);
        assert_eq!(run(b'B', b"\0s1\0\0\0"), None);
        assert_eq!(run(b'E', b"\0\0\0\0\0").as_deref(), Some("select 1"));
        assert_eq!(run(b'B', b"portal\0s2\0\0\0"), None);
        assert_eq!(run(b'E', b"portal\0\0\0\0\0").as_deref(), Some("select 2"));
        assert_eq!(run(b'E', b"\0\0\0\0\0").as_deref(), Some("select 1"));
        assert_eq!(run(b'C', b"Pportal\0"), None);
        assert_eq!(run(b'E', b"portal\0\0\0\0\0"), None);
        assert_eq!(run(b'Q', b"select 3\0").as_deref(), Some("select 3"));
    }
}
