use std::time::Duration;

/// What is to go wrong, and when.
///
/// Rules about a statement fire once unless [`times`](Rule::times) says otherwise; rules about everything
/// hold until they are removed.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) when: When,
    pub(super) skip: u64,
    pub(super) times: u64,
}

/// What each kind of rule looks at.
#[derive(Debug, Clone)]
pub(super) enum When {
    /// The server said that it committed.
    Committed,
    /// A statement is about to run whose text contains this.
    Statement(String, AtStatement),
    /// The client's nth message on a connection.
    ClientMessage(u64),
    /// The server's nth message on a connection.
    ServerMessage(u64),
    /// A client connects.
    Connecting,
    /// Anything passes, in either direction.
    Traffic(Weather),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum AtStatement {
    DropReply,
    CutBefore,
    Blackhole,
    Delay(Duration),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Weather {
    Delay(Duration),
    Throttle(u64),
    Blackhole,
}

impl Rule {
    fn once(when: When) -> Self {
        Self { when, skip: 0, times: 1 }
    }

    fn always(when: When) -> Self {
        Self { when, skip: 0, times: u64::MAX }
    }

    fn at(sql: impl Into<String>, what: AtStatement) -> Self {
        Self::once(When::Statement(sql.into(), what))
    }

    /// The server has committed a transaction (the answer to COMMIT is COMMIT, not ROLLBACK); the client
    /// sees its connection end instead of the answer. A statement outside of a transaction commits
    /// without that word: use [`drop_reply_to`](Self::drop_reply_to).
    pub fn drop_reply_to_commit() -> Self {
        Self::once(When::Committed)
    }

    /// The server has finished a statement that contains `sql`; the client sees its connection end
    /// instead of the answer.
    pub fn drop_reply_to(sql: impl Into<String>) -> Self {
        Self::at(sql, AtStatement::DropReply)
    }

    /// The connection ends when a statement that contains `sql` is about to run. The server never runs it.
    pub fn cut_before(sql: impl Into<String>) -> Self {
        Self::at(sql, AtStatement::CutBefore)
    }

    /// A statement that contains `sql` runs, and from then on nothing passes on its connection, in either
    /// direction, until the rule is removed. Nobody is told: no end, no reset.
    pub fn blackhole_after(sql: impl Into<String>) -> Self {
        Self::at(sql, AtStatement::Blackhole)
    }

    /// A statement that contains `sql` reaches the server this much later.
    pub fn delay_statement(sql: impl Into<String>, by: Duration) -> Self {
        Self::at(sql, AtStatement::Delay(by))
    }

    /// A connection ends after the nth message of its client, counted from 1 once the session is ready.
    /// The server gets that message.
    pub fn cut_after_client_message(nth: u64) -> Self {
        Self::once(When::ClientMessage(nth))
    }

    /// A connection ends in the middle of the nth message of the server, counted from 1 once the session
    /// is ready.
    pub fn cut_inside_server_message(nth: u64) -> Self {
        Self::once(When::ServerMessage(nth))
    }

    /// Each new connection is reset at once.
    pub fn refuse_connections() -> Self {
        Self::always(When::Connecting)
    }

    /// Each message of a client reaches the server this much later.
    pub fn delay(by: Duration) -> Self {
        Self::always(When::Traffic(Weather::Delay(by)))
    }

    /// Each connection carries so many bytes a second in each direction.
    pub fn throttle(bytes_a_second: u64) -> Self {
        Self::always(When::Traffic(Weather::Throttle(bytes_a_second.max(1))))
    }

    /// Nothing passes, in either direction, and nobody is told, until the rule is removed. Then everything
    /// that was held back flows.
    pub fn blackhole() -> Self {
        Self::always(When::Traffic(Weather::Blackhole))
    }

    /// Lets the first `n` occasions pass.
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Fires on so many occasions, then never again.
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }
}
