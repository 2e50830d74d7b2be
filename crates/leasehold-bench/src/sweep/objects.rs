//! Writes the objects of the contents as files into the directory of the store.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::layout::Layout;

const CHUNK: u64 = 1_000;
/// The size of one small file on most file systems.
const BLOCK: u64 = 4096;
/// The size of one paste in the database while it goes through its states, WAL included.
const ROW: u64 = 2_000;

/// Fails before anything is written if the disk has too little space.
pub fn ensure_room(root: &Path, layout: &Layout) -> Result<()> {
    let room = rustix::fs::statvfs(root).with_context(|| format!("{}", root.display()))?;
    let files = layout.contents();
    let block = (layout.object_size as u64).next_multiple_of(BLOCK);
    let need = layout.filled() * block + layout.rows * ROW;
    let free = room.f_bavail * room.f_frsize;
    if free < need {
        bail!(
            "{} GB free in {}, about {} GB needed; use another --dir, fewer --rows or --object-size 0",
            free / 1_000_000_000,
            root.display(),
            need / 1_000_000_000 + 1
        );
    }
    // File systems without a limit report 0.
    if room.f_files > 0 && room.f_favail < files + 10_000 {
        bail!(
            "{} files more fit on the file system of {}, {files} are needed",
            room.f_favail,
            root.display()
        );
    }
    Ok(())
}

/// Writes objects in the background. Dropping it stops the writers, so that they do not write into a
/// directory that is being removed.
pub struct Laying {
    stop: CancellationToken,
    writers: Option<JoinHandle<()>>,
    ended: oneshot::Receiver<Result<()>>,
}

impl Laying {
    pub fn start(root: &Path, layout: &Layout, bar: &ProgressBar) -> Result<Self> {
        let stop = CancellationToken::new();
        let (end, ended) = oneshot::channel();
        let (root, layout, bar) = (root.to_path_buf(), *layout, bar.clone());
        let stopped = stop.clone();
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let writers = std::thread::Builder::new().spawn(move || {
            let _ = end.send(lay(&root, &layout, threads, &stopped, &bar));
        })?;
        Ok(Self { stop, writers: Some(writers), ended })
    }

    pub async fn ended(&mut self) -> Result<()> {
        (&mut self.ended).await.context("the tasks that create objects are gone")?
    }
}

impl Drop for Laying {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(writers) = self.writers.take() {
            let _ = writers.join();
        }
    }
}

/// Writes one file per content, with several threads.
fn lay(
    root: &Path,
    layout: &Layout,
    threads: usize,
    stop: &CancellationToken,
    bar: &ProgressBar,
) -> Result<()> {
    for folder in 0..4096 {
        fs::create_dir_all(root.join("blobs").join(format!("{folder:03x}")))?;
    }
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let from = next.fetch_add(CHUNK, Ordering::Relaxed);
                        if from > layout.contents() || stop.is_cancelled() {
                            return Ok(());
                        }
                        let to = (from + CHUNK - 1).min(layout.contents());
                        for content in from..=to {
                            let path = root.join(layout.key(content));
                            if let Err(error) = fs::write(&path, layout.object(content)) {
                                stop.cancel();
                                return Err(error).with_context(|| format!("{}", path.display()));
                            }
                        }
                        bar.inc(to - from + 1);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })
}

/// Returns the number of objects in the store, and how many of these keys are missing.
pub fn left(root: &Path, keys: &HashSet<String>) -> Result<(u64, u64)> {
    let (mut count, mut found) = (0, 0);
    for folder in fs::read_dir(root.join("blobs"))? {
        let folder = folder?;
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            let name = file.file_name();
            count += 1;
            let key = PathBuf::from("blobs").join(folder.file_name()).join(name);
            found += u64::from(keys.contains(&key.to_string_lossy().into_owned()));
        }
    }
    Ok((count, keys.len() as u64 - found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[tokio::test]
    async fn check_notices_a_missing_object() {
        let scratch = Scratch::new(None).unwrap();
        let layout = Layout::new(100, 64);
        let mut laying = Laying::start(scratch.path(), &layout, &ProgressBar::hidden()).unwrap();
        laying.ended().await.unwrap();
        let keys: HashSet<String> =
            (1..=layout.contents()).map(|content| layout.key(content)).collect();
        assert_eq!(left(scratch.path(), &keys).unwrap(), (layout.contents(), 0));
        let one = keys.iter().next().unwrap();
        assert_eq!(fs::metadata(scratch.path().join(one)).unwrap().len(), 64);
        fs::remove_file(scratch.path().join(one)).unwrap();
        assert_eq!(left(scratch.path(), &keys).unwrap(), (layout.contents() - 1, 1));
    }
}
