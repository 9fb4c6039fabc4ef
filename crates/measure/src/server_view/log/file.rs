//! A log file of this host: what is appended to it from now on, wherever rotation moves it.
//!
//! Rotation comes in three forms. The server's own collector begins a file with a new name in the same folder; logrotate
//! renames the file and another one takes its place; or the file is copied and cut to nothing. All three are followed.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::reader::LARGEST;

/// As many files begun during a run are followed.
const MOST_FILES: usize = 64;

/// The file, and those that came after it.
pub(super) struct FileSource {
    path: PathBuf,
    open: Vec<Open>,
    /// Files that were there before: none of them is a continuation.
    known: HashSet<(u64, u64)>,
    read: u64,
}

struct Open {
    file: File,
    position: u64,
}

impl FileSource {
    /// Remembers the end of the file.
    ///
    /// # Errors
    /// When it cannot be opened, or is no file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let mut known: HashSet<_> = siblings(path).into_iter().map(|(_, id, _)| id).collect();
        known.insert(identity(&metadata));
        let open = vec![Open { file, position: metadata.len() }];
        Ok(FileSource { path: path.to_owned(), open, known, read: 0 })
    }

    /// Opens files that have appeared since: the one of our name first, then others in the order of their age.
    fn follow(&mut self) {
        let mut fresh: Vec<PathBuf> = Vec::new();
        if let Ok(metadata) = fs::metadata(&self.path) {
            if metadata.is_file() && self.known.insert(identity(&metadata)) {
                fresh.push(self.path.clone());
            }
        }
        let mut others = siblings(&self.path);
        others.sort_by(|a, b| (a.2, &a.0).cmp(&(b.2, &b.0)));
        for (path, id, _) in others {
            if self.known.insert(id) {
                fresh.push(path);
            }
        }
        for path in fresh {
            if self.open.len() < MOST_FILES {
                self.open.extend(File::open(path).ok().map(|file| Open { file, position: 0 }));
            }
        }
    }
}

impl FileSource {
    /// The file that was named.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What was appended since the last call; nothing once [`LARGEST`] is reached.
    ///
    /// # Errors
    /// When the system refuses to read on.
    pub(super) fn more(&mut self) -> io::Result<Vec<u8>> {
        self.follow();
        let mut bytes = Vec::new();
        for open in &mut self.open {
            let room = LARGEST.saturating_sub(self.read);
            self.read += open.more(room, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Whether no more is read.
    pub(super) fn is_full(&self) -> bool {
        self.read >= LARGEST
    }
}

impl Open {
    fn more(&mut self, room: u64, bytes: &mut Vec<u8>) -> io::Result<u64> {
        if self.file.metadata()?.len() < self.position {
            self.position = 0;
        }
        self.file.seek(SeekFrom::Start(self.position))?;
        let got = (&self.file).take(room).read_to_end(bytes)? as u64;
        self.position += got;
        Ok(got)
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Files beside `path` with the same suffix: path, identity, time of the last change.
fn siblings(path: &Path) -> Vec<(PathBuf, (u64, u64), i64)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension() == path.extension())
        .filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((entry.path(), identity(&metadata), metadata.mtime_nsec() + 1_000_000_000 * metadata.mtime()))
        })
        .collect()
}
