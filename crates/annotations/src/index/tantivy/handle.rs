//! A set by its name, for callers that keep it: the process may become the writer meanwhile, or the set
//! may be removed, and a set that was opened before would notice neither.

use futures_util::future::BoxFuture;
use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Tombstone, Write, Written,
};

use super::TantivyIndex;

pub struct Handle {
    pub index: TantivyIndex,
    pub name: String,
}

impl Target for Handle {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        Box::pin(async move { self.index.set(&self.name).await?.held(keys).await })
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        Box::pin(async move { self.index.set(&self.name).await?.write(writes).await })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        Box::pin(async move { self.index.set(&self.name).await?.digest(range).await })
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        Box::pin(async move { self.index.set(&self.name).await?.list(range, most).await })
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move { self.index.set(&self.name).await?.forget(deletions).await })
    }
}
