//! From the server to the client: knows when the server has finished.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::lane::{Direction, Lane};
use super::rules::Rules;
use super::session::{Ready, Session};

/// Forwards until the server or a rule ends the connection.
pub(super) async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    session: &Session,
    rules: &Rules,
) -> io::Result<()> {
    let lane = Lane { session, rules, direction: Direction::ToClient };
    let mut count = 0;
    loop {
        // Check before reading: a server whose packets are swallowed is not read from, either.
        lane.wait_for_passage().await;
        let Some(head) = lane.next(&mut from).await? else {
            return Ok(());
        };
        let was_ready = session.is_ready();
        let committed = head.tag == b'C' && head.text(0, 0) == "COMMIT";
        if committed
            && !session.is_doomed_now()
            && let Some(rule) = rules.at_commit()
        {
            session.doom_current(rule);
        }
        let doomed = session.is_doomed_now();
        match head.tag {
            b'G' => session.copy_in(),
            b'Z' => {
                if let Ready::Cut(rule) = session.ready() {
                    rules.fire(rule);
                    return Ok(());
                }
            }
            _ => {}
        }
        let cut = if was_ready && !doomed {
            count += 1;
            rules.at_server_message(count)
        } else {
            None
        };
        if doomed {
            let mut rest = (&mut from).take(head.rest as u64);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        } else if let Some(rule) = cut {
            lane.write(&head.bytes[..head.bytes.len() / 2], &mut to).await?;
            rules.fire(rule);
            return Ok(());
        } else {
            lane.pass_on(&head, &mut from, &mut to).await?;
        }
    }
}
