use super::call::{Call, Op};

/// What is to go wrong, and when.
///
/// ```
/// use leasehold_testing::s3::{Op, Rule};
/// Rule::on(Op::Put).fail(503).times(3);
/// Rule::on(Op::Delete).and(Op::DeleteMany).key("blobs/").land_later();
/// Rule::on_everything().drop_before().always();
/// ```
///
/// A rule fires once unless [`times`](Rule::times) or [`always`](Rule::always) says otherwise. Of the rules
/// that fit a request, the one that was added first fires; rules that hide keys apply beside it.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) on: On,
    pub(super) fault: Fault,
    pub(super) skip: u64,
    pub(super) times: u64,
}

/// Which requests a rule is about. Its other methods say what happens to them.
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

/// What the store itself does differently for one request.
#[derive(Debug, Default)]
pub(super) struct Tamper {
    /// One byte of what is stored is another one.
    pub corrupt: bool,
    /// Keys of a batch that are refused: those that contain this.
    pub refuse: Option<String>,
    /// Keys that a list leaves out: those that contain one of these.
    pub hide: Vec<String>,
}

impl Rule {
    /// About requests of this kind.
    pub fn on(op: Op) -> On {
        On { ops: vec![op], key: String::new() }
    }

    /// About all requests.
    pub fn on_everything() -> On {
        On { ops: Vec::new(), key: String::new() }
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

    /// Fires until it is removed.
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }
}

impl On {
    /// Also about requests of this kind.
    pub fn and(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    /// Only about keys that contain this. A batch fits if one of its keys does.
    pub fn key(mut self, part: impl Into<String>) -> Self {
        self.key = part.into();
        self
    }

    /// Nothing is done; the client gets this status and an error of S3's form.
    pub fn fail(self, status: u16) -> Rule {
        self.once(Fault::Fail(status))
    }

    /// Nothing is done; the connection ends.
    pub fn drop_before(self) -> Rule {
        self.once(Fault::DropBefore)
    }

    /// It is done; the connection ends before the answer.
    pub fn apply_then_drop(self) -> Rule {
        self.once(Fault::DropReply)
    }

    /// Waits until the rule is removed, then does it. Also when the client has given up meanwhile, as a
    /// request does that is under way in the network.
    pub fn hold(self) -> Rule {
        self.once(Fault::Hold)
    }

    /// It is done at once; the answer waits until the rule is removed.
    pub fn hold_reply(self) -> Rule {
        self.once(Fault::HoldReply)
    }

    /// The connection ends at once; what was asked for is done when the rule is removed.
    pub fn land_later(self) -> Rule {
        self.once(Fault::LandLater)
    }

    /// A byte in the middle of the answer is another one. Length and headers are right.
    pub fn flip_byte(self) -> Rule {
        self.once(Fault::FlipByte)
    }

    /// The answer is a whole one with half of the bytes: its length says so too.
    pub fn shorten(self) -> Rule {
        self.once(Fault::Shorten)
    }

    /// The connection ends after half of the bytes that the answer's length promised.
    pub fn cut_inside(self) -> Rule {
        self.once(Fault::CutInside)
    }

    /// What is stored is not what was sent: one byte in the middle is another one. The client is told
    /// that all went well.
    pub fn corrupt(self) -> Rule {
        self.once(Fault::Corrupt)
    }

    /// Nothing is done; the client gets 200, an ETag, and an error of S3's form as the body.
    pub fn error_in_200(self) -> Rule {
        self.once(Fault::Pretend)
    }

    /// In a batch, the keys that contain the rule's text are refused, each in its own line of an answer
    /// that is a success as a whole; the others are removed.
    pub fn refuse_keys(self) -> Rule {
        self.once(Fault::RefuseKeys)
    }

    pub(super) fn fits(&self, call: &Call) -> bool {
        let op_fits = self.ops.is_empty() || self.ops.contains(&call.op);
        op_fits && (self.key.is_empty() || call.keys.iter().any(|key| key.contains(&self.key)))
    }

    /// The text that keys have to contain.
    pub(super) fn key_part(&self) -> &str {
        &self.key
    }

    fn once(self, fault: Fault) -> Rule {
        Rule { on: self, fault, skip: 0, times: 1 }
    }
}

impl Rule {
    /// Lists leave out the keys that contain `part`, until the rule is removed. Everything else sees them.
    pub fn hide_from_lists(part: impl Into<String>) -> Self {
        let on = On { ops: vec![Op::List], key: part.into() };
        Self { on, fault: Fault::HideKeys, skip: 0, times: u64::MAX }
    }
}
