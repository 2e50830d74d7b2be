use super::call::{Call, Op};

/// A fault, and when it happens.
///
/// ```
/// use leasehold_testing::s3::{Op, Rule};
/// Rule::on(Op::Put).fail(503).times(3);
/// Rule::on(Op::Delete).and(Op::DeleteMany).key("blobs/").land_later();
/// Rule::on_everything().drop_before().always();
/// ```
///
/// A rule fires once unless [`times`](Rule::times) or [`always`](Rule::always) says otherwise. Of the
/// rules that match a request, the one that was added first fires; rules that hide keys apply in
/// addition.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) on: On,
    pub(super) fault: Fault,
    pub(super) skip: u64,
    pub(super) times: u64,
}

/// Selects the requests of a rule. Its other methods choose the fault.
#[derive(Debug, Clone)]
#[must_use = "this becomes a rule when it says what is to happen"]
pub struct On {
    ops: Vec<Op>,
    key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Fail(u16),
    DropBefore,
    DropReply,
    Hold,
    HoldReply,
    LandLater,
    FlipByte,
    Shorten,
    CutInside,
    Corrupt,
    Pretend,
    RefuseKeys,
    HideKeys,
}

/// What the store does differently for one request.
#[derive(Debug, Default)]
pub(super) struct Tamper {
    /// Stores the body with one byte changed.
    pub corrupt: bool,
    /// Keys of a batch to refuse: those that contain this.
    pub refuse: Option<String>,
    /// Keys to leave out of a list: those that contain one of these.
    pub hide: Vec<String>,
}

impl Rule {
    /// Selects requests of this operation.
    pub fn on(op: Op) -> On {
        On { ops: vec![op], key: String::new() }
    }

    /// Selects all requests.
    pub fn on_everything() -> On {
        On { ops: Vec::new(), key: String::new() }
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

    /// Fires until it is removed.
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }
}

impl On {
    /// Also selects requests of this operation.
    pub fn and(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    /// Only selects keys that contain this. A batch matches if one of its keys does.
    pub fn key(mut self, part: impl Into<String>) -> Self {
        self.key = part.into();
        self
    }

    /// Not applied; the client gets this status and an error in S3's format.
    pub fn fail(self, status: u16) -> Rule {
        self.once(Fault::Fail(status))
    }

    /// Not applied; the connection ends.
    pub fn drop_before(self) -> Rule {
        self.once(Fault::DropBefore)
    }

    /// Applied; the connection ends before the response.
    pub fn apply_then_drop(self) -> Rule {
        self.once(Fault::DropReply)
    }

    /// Applied when the rule is removed, even if the client has timed out meanwhile, as with a request
    /// in transit.
    pub fn hold(self) -> Rule {
        self.once(Fault::Hold)
    }

    /// Applied at once; the response waits until the rule is removed.
    pub fn hold_reply(self) -> Rule {
        self.once(Fault::HoldReply)
    }

    /// The connection ends at once; the request is applied when the rule is removed.
    pub fn land_later(self) -> Rule {
        self.once(Fault::LandLater)
    }

    /// Changes a byte in the middle of the response. Length and headers are right.
    pub fn flip_byte(self) -> Rule {
        self.once(Fault::FlipByte)
    }

    /// Returns half of the bytes as a complete response: the length matches them.
    pub fn shorten(self) -> Rule {
        self.once(Fault::Shorten)
    }

    /// The connection ends after half of the bytes that the response's length promised.
    pub fn cut_inside(self) -> Rule {
        self.once(Fault::CutInside)
    }

    /// Stores other bytes than were sent: one byte in the middle is changed. The client gets a
    /// success.
    pub fn corrupt(self) -> Rule {
        self.once(Fault::Corrupt)
    }

    /// Not applied; the client gets 200, an ETag, and an error in S3's format as the body.
    pub fn error_in_200(self) -> Rule {
        self.once(Fault::Pretend)
    }

    /// In a batch, refuses the keys that contain the rule's text. The response succeeds as a whole
    /// and lists an error per refused key; the other keys are deleted.
    pub fn refuse_keys(self) -> Rule {
        self.once(Fault::RefuseKeys)
    }

    pub(super) fn fits(&self, call: &Call) -> bool {
        let op_fits = self.ops.is_empty() || self.ops.contains(&call.op);
        op_fits && (self.key.is_empty() || call.keys.iter().any(|key| key.contains(&self.key)))
    }

    /// Returns the text that keys must contain.
    pub(super) fn key_part(&self) -> &str {
        &self.key
    }

    fn once(self, fault: Fault) -> Rule {
        Rule { on: self, fault, skip: 0, times: 1 }
    }
}

impl Rule {
    /// Lists leave out the keys that contain `part`, until the rule is removed. Other operations see
    /// them.
    pub fn hide_from_lists(part: impl Into<String>) -> Self {
        let on = On { ops: vec![Op::List], key: part.into() };
        Self { on, fault: Fault::HideKeys, skip: 0, times: u64::MAX }
    }
}
