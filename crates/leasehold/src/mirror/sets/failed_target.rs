//! A set that could not be opened: every call returns the reason.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use super::target::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Tombstone, Write, Written,
};

pub(super) struct FailedTarget(pub(super) TargetError);

impl FailedTarget {
    fn answer<'a, T: Send + 'a>(&self) -> BoxFuture<'a, Result<T, TargetError>> {
        ready(Err(self.0.clone())).boxed()
    }
}

impl Target for FailedTarget {
    fn held<'a>(
        &'a self,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        self.answer()
    }

    fn write<'a>(
        &'a self,
        _: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        self.answer()
    }

    fn digest<'a>(&'a self, _: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        self.answer()
    }

    fn list<'a>(
        &'a self,
        _: &'a Range,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        self.answer()
    }

    fn forget<'a>(&'a self, _: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        self.answer()
    }
}
