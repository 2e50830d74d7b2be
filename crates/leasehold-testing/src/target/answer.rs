//! The responses of the store to a mirror.

use std::future::Future;
use std::pin::Pin;

use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Tombstone, Write, Written,
};

use super::{Inner, Operation, ScriptedTarget};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, TargetError>> + Send + 'a>>;

impl ScriptedTarget {
    /// Logs the call, and applies the faults of the store.
    async fn begin(&self, operation: Operation) -> Result<(), TargetError> {
        let faults = {
            let mut inner = self.inner();
            inner.log.push(operation);
            inner.forget_old();
            inner.faults.clone()
        };
        if let Some(slow) = faults.slow {
            tokio::time::sleep(slow).await;
        }
        if faults.down {
            return Err(TargetError::Down("the script has set the store down".to_owned()));
        }
        let keys = match operation {
            Operation::Held(keys) | Operation::Write(keys) | Operation::Forget(keys) => keys,
            Operation::Digest | Operation::List => 0,
        };
        match faults.at_most {
            Some(most) if keys > most => {
                Err(TargetError::Overloaded(format!("{keys} keys are more than {most}")))
            }
            _ => Ok(()),
        }
    }
}

impl Inner {
    fn write(&mut self, write: &Write) -> Result<Written, ItemError> {
        if let Some(error) = self.faults.items.get(&write.key) {
            return Err(error.clone());
        }
        if self.faults.delay_writes || self.faults.duplicate_writes {
            self.delayed.push(write.clone());
        }
        if self.faults.delay_writes { Ok(Written::Stored) } else { Ok(self.apply(write)) }
    }
}

impl Target for ScriptedTarget {
    fn held<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<Option<StoredVersion>>> {
        Box::pin(async move {
            self.begin(Operation::Held(keys.len())).await?;
            let inner = self.inner();
            let held = |key: &String| inner.shown().get(key).map(|stored| stored.held());
            Ok(keys.iter().map(held).collect())
        })
    }

    fn write<'a>(&'a self, writes: &'a [Write]) -> Answer<'a, Vec<Result<Written, ItemError>>> {
        Box::pin(async move {
            self.begin(Operation::Write(writes.len())).await?;
            let mut inner = self.inner();
            let answers = writes.iter().map(|write| inner.write(write)).collect();
            if inner.faults.lose_answers || inner.faults.delay_writes {
                return Err(TargetError::Down("the answer was lost".to_owned()));
            }
            Ok(answers)
        })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> Answer<'a, Digest> {
        Box::pin(async move {
            self.begin(Operation::Digest).await?;
            let mut digest = Digest::default();
            for (key, stored) in self.inner().shown() {
                if stored.document.is_some() && range.contains(key) {
                    digest.add(key, stored.version);
                }
            }
            Ok(digest)
        })
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> Answer<'a, Vec<(String, StoredVersion)>> {
        Box::pin(async move {
            self.begin(Operation::List).await?;
            let inner = self.inner();
            let here = inner.shown().iter().filter(|(key, _)| range.contains(key)).take(most);
            Ok(here.map(|(key, stored)| (key.clone(), stored.held())).collect())
        })
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> Answer<'a, ()> {
        Box::pin(async move {
            self.begin(Operation::Forget(deletions.len())).await?;
            let mut inner = self.inner();
            for Tombstone { key, version } in deletions {
                let old = inner
                    .stored
                    .get(key)
                    .is_some_and(|stored| stored.document.is_none() && stored.version <= *version);
                if old {
                    inner.stored.remove(key);
                }
            }
            Ok(())
        })
    }
}
