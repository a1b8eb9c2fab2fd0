//! `undertone models pack` and `unpack`: the models as one file, so that a machine needs neither compiler nor Python.

use crate::models::{LIST, Models};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

/// The longest list of files, bytes.
const LONGEST_LIST: u64 = 1 << 20;

/// Writes the listed files into a tar archive, after they were checked. Not compressed: weights hardly are.
pub(super) fn pack(models: &Models, archive: &Path) -> Result<()> {
    models.verify()?;
    // Nothing else has this name.
    let mut new = archive.as_os_str().to_owned();
    new.push(format!(".{}.part", std::process::id()));
    let new = PathBuf::from(new);
    let written = write(models, &new).and_then(|()| Ok(std::fs::rename(&new, archive)?));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.with_context(|| format!("cannot write {}", archive.display()))
}

fn write(models: &Models, path: &Path) -> Result<()> {
    let mut tar = tar::Builder::new(BufWriter::new(File::create(path)?));
    // The same files make the same archive.
    tar.mode(tar::HeaderMode::Deterministic);
    // The list first, so that it is known what follows.
    let listed = models.files().iter().map(|file| file.path.as_str());
    for path in [LIST].into_iter().chain(listed) {
        tar.append_path_with_name(models.dir().join(path), path)?;
    }
    tar.into_inner()?.into_inner()?.sync_all()?;
    Ok(())
}

/// Reads an archive into a folder that is not there yet or empty, and checks every file against the list.
pub(super) fn unpack(archive: &Path, dir: &Path) -> Result<Models> {
    let is_empty = std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
    ensure!(
        is_empty,
        "{} is not empty: name another folder with --into, or move it away",
        dir.display()
    );
    let file = File::open(archive).with_context(|| format!("cannot read {}", archive.display()))?;
    let new = beside(dir)?;
    let unpacked = read(file, &new).with_context(|| {
        format!(
            "{} is no archive of `undertone models pack`",
            archive.display()
        )
    });
    let moved = unpacked.and_then(|()| {
        Models::open(&new)?.verify()?;
        let _ = std::fs::remove_dir(dir);
        std::fs::rename(&new, dir).with_context(|| format!("cannot make {}", dir.display()))
    });
    if moved.is_err() {
        let _ = std::fs::remove_dir_all(&new);
    }
    moved?;
    Ok(Models::open(dir)?)
}

/// A new folder on the same disk, which takes the other's place when it is whole.
fn beside(dir: &Path) -> Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    let parent = dir.parent().context("--into names no folder")?;
    let name = dir
        .file_name()
        .context("--into names no folder")?
        .to_string_lossy();
    let new = parent.join(format!(".{name}.{}", std::process::id()));
    std::fs::create_dir_all(&new).with_context(|| format!("cannot make {}", new.display()))?;
    Ok(new)
}

/// Only plain files with names inside the folder are read.
fn read(archive: File, dir: &Path) -> Result<()> {
    let mut tar = tar::Archive::new(BufReader::new(archive));
    for (nth, entry) in tar.entries()?.enumerate() {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let is_inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        ensure!(
            entry.header().entry_type().is_file() && is_inside,
            "{} is not a plain file inside of the folder",
            path.display()
        );
        if nth == 0 && (path != Path::new(LIST) || entry.size() > LONGEST_LIST) {
            bail!("it does not begin with {LIST}");
        }
        let file = dir.join(&path);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create_new(&file)?);
        std::io::copy(&mut entry.by_ref(), &mut file)?;
        file.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, &str)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut tar = tar::Builder::new(file.reopen().unwrap());
        for (path, text) in entries {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            // `set_path` refuses such names.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            tar.append(&header, text.as_bytes()).unwrap();
        }
        tar.finish().unwrap();
        file
    }

    #[test]
    fn nothing_is_written_outside_of_the_folder_and_nothing_half() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("deep/models");
        std::fs::create_dir(parent.path().join("deep")).unwrap();
        for entries in [
            &[(LIST, ""), ("../escaped", "x")][..],
            &[(LIST, ""), ("/tmp/undertone-escaped", "x")],
            &[("minilm/model.onnx", "x")],
            // A list that is none.
            &[(LIST, "nonsense")],
            &[],
        ] {
            let archive = archive(entries);
            assert!(unpack(archive.path(), &dir).is_err(), "{entries:?}");
            assert!(!dir.exists() && !parent.path().join("deep/escaped").exists());
            assert_eq!(
                std::fs::read_dir(parent.path().join("deep"))
                    .unwrap()
                    .count(),
                0
            );
        }
    }

    #[test]
    fn a_folder_with_files_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine"), "x").unwrap();
        let error = unpack(archive(&[(LIST, "")]).path(), dir.path()).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert!(dir.path().join("mine").exists());
    }
}
