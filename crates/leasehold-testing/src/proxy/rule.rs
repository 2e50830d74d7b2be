use std::time::Duration;

/// A fault, and when it happens.
///
/// Rules about a statement fire once unless [`times`](Rule::times) says otherwise; rules about all
/// traffic stay in force until they are removed.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) when: When,
    pub(super) skip: u64,
    pub(super) times: u64,
}

/// The occasion on which a rule fires.
#[derive(Debug, Clone)]
pub(super) enum When {
    /// The server reported a commit.
    Committed,
    /// A statement whose text contains this is about to run.
    Statement(String, AtStatement),
    /// The client's nth message on a connection.
    ClientMessage(u64),
    /// The server's nth message on a connection.
    ServerMessage(u64),
    /// A client connects.
    Connecting,
    /// Any data passes, in either direction.
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

    /// The server has committed a transaction (the reply to COMMIT is COMMIT, not ROLLBACK); the
    /// client sees its connection end instead of the reply. A statement outside a transaction commits
    /// without a COMMIT reply: use [`drop_reply_to`](Self::drop_reply_to).
    pub fn drop_reply_to_commit() -> Self {
        Self::once(When::Committed)
    }

    /// The server has finished a statement that contains `sql`; the client sees its connection end
    /// instead of the reply.
    pub fn drop_reply_to(sql: impl Into<String>) -> Self {
        Self::at(sql, AtStatement::DropReply)
    }

    /// The connection ends when a statement that contains `sql` is about to run. The server never runs it.
    pub fn cut_before(sql: impl Into<String>) -> Self {
        Self::at(sql, AtStatement::CutBefore)
    }

    /// A statement that contains `sql` runs, and from then on nothing passes on its connection, in
    /// either direction, until the rule is removed. Neither side sees an end or a reset.
    pub fn blackhole_after(sql: impl Into<String>) -> Self {
        Self::at(sql, AtStatement::Blackhole)
    }

    /// A statement that contains `sql` reaches the server later, by `by`.
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

    /// Each message of a client reaches the server later, by `by`.
    pub fn delay(by: Duration) -> Self {
        Self::always(When::Traffic(Weather::Delay(by)))
    }

    /// Limits each connection to this many bytes per second in each direction.
    pub fn throttle(bytes_a_second: u64) -> Self {
        Self::always(When::Traffic(Weather::Throttle(bytes_a_second.max(1))))
    }

    /// Nothing passes, in either direction, and neither side sees an end, until the rule is removed.
    /// Then everything that was held back flows.
    pub fn blackhole() -> Self {
        Self::always(When::Traffic(Weather::Blackhole))
    }

    /// Lets the first `n` occasions pass.
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Fires on `n` occasions, then never again.
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }
}
