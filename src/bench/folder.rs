//! Reports on disk: JSON and plots of each, and one page about all.

use super::plot::PlotError;
use super::{Bench, Report};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder that gets `benchmarks.md` and, in `benchmarks/`, the reports as JSON and their plots as SVG.
#[derive(Debug)]
pub struct Folder {
    folder: PathBuf,
}

/// The reports could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file could not be read or written.
    #[error("cannot read or write {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// A file is not a report.
    #[error("{path} is not a report of this version: {reason}; delete it, and run its bench again")]
    Report {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: serde_json::Error,
    },
    /// A plot could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

const HEAD: &str = "\
# Benchmarks: what speculation buys and costs

`undertone bench --out docs` writes this page from its own output; `undertone bench NAME --out docs` runs one bench
again. Reports as JSON and the plots are in `benchmarks/`. The same seed gives the same figures on every machine where a
bench runs in virtual time. `sockets` and all behind `model` run in real time: ratios are the same elsewhere within their
spread, milliseconds are those of the machine.
";

impl Folder {
    /// A folder, which is created when something is kept in it.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Keeps a report and its plots in place of those of the same bench.
    ///
    /// # Errors
    /// [`FolderError`] if a plot cannot be drawn or a file not be written.
    pub fn keep(&self, report: &Report) -> Result<(), FolderError> {
        let files = self.files();
        fs::create_dir_all(&files).map_err(at(&files))?;
        let path = files.join(format!("{}.json", report.name));
        let json = serde_json::to_string_pretty(report);
        let json = json.map_err(|reason| FolderError::Report {
            path: path.clone(),
            reason,
        })?;
        write(&path, &(json + "\n"))?;
        for plot in &report.plots {
            let svg = plot.svg()?;
            write(&files.join(format!("{}.svg", plot.name)), &svg)?;
        }
        Ok(())
    }

    /// Writes the page about all reports that are kept, and returns its path.
    ///
    /// # Errors
    /// [`FolderError`] if a report cannot be read or the page not be written.
    pub fn write_page(&self) -> Result<PathBuf, FolderError> {
        let path = self.folder.join("benchmarks.md");
        write(&path, &page(&self.reports()?))?;
        Ok(path)
    }

    fn reports(&self) -> Result<Vec<Report>, FolderError> {
        let mut reports = Vec::new();
        for bench in Bench::ALL {
            let path = self.files().join(format!("{}.json", bench.name()));
            let json = match fs::read_to_string(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                json => json.map_err(at(&path))?,
            };
            let report = serde_json::from_str(&json);
            reports.push(report.map_err(|reason| FolderError::Report { path, reason })?);
        }
        Ok(reports)
    }

    fn files(&self) -> PathBuf {
        self.folder.join("benchmarks")
    }
}

fn write(path: &Path, text: &str) -> Result<(), FolderError> {
    fs::write(path, text).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |reason| FolderError::File {
        path: path.to_owned(),
        reason,
    }
}

/// First what was found, then each bench with its method.
fn page(reports: &[Report]) -> String {
    let mut page = format!("{HEAD}\n## In short\n\n");
    for finding in reports.iter().flat_map(|report| &report.findings) {
        page += &format!("- {finding}\n");
    }
    for report in reports {
        page += &section(report);
    }
    page
}

fn section(report: &Report) -> String {
    let mut section = format!("\n## {}\n\n", report.title);
    section += &format!(
        "`undertone bench {} --seed {}`\n\n",
        report.name, report.seed
    );
    for plot in &report.plots {
        section += &format!("![{}](benchmarks/{}.svg)\n\n", plot.title, plot.name);
    }
    for table in &report.tables {
        section += &format!("**{}**\n\n{}\n\n", table.title, table.markdown());
    }
    if !report.checks.is_empty() {
        section += "**Expected**\n\n";
        for check in &report.checks {
            let holds = if check.holds { "met" } else { "NOT MET" };
            section += &format!("- {}: {}, {holds}\n", check.what, check.found);
        }
        section += "\n";
    }
    section += "**Method**\n\n";
    section + &report.method.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            name: "model".into(),
            title: "The cost model".into(),
            seed: 3,
            method: vec!["In virtual time.".into()],
            findings: vec!["It holds.".into()],
            tables: Vec::new(),
            plots: Vec::new(),
            checks: vec![super::super::Check::at_most("difference", 0.2, 0.1, " %")],
        }
    }

    #[test]
    fn the_page_tells_all_that_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path().join("new"));
        folder.keep(&report()).unwrap();
        let page = fs::read_to_string(folder.write_page().unwrap()).unwrap();
        assert!(page.contains("## In short\n\n- It holds.\n"), "{page}");
        assert!(page.contains("`undertone bench model --seed 3`"));
        assert!(page.contains("- difference: at most 0.1 %: 0.2000 %, NOT MET\n"));
        assert!(page.ends_with("**Method**\n\nIn virtual time.\n"));
    }

    #[test]
    fn the_page_in_docs_is_made_of_the_reports_beside_it() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let reports = Folder::new(&docs).reports().unwrap();
        let kept = fs::read_to_string(docs.join("benchmarks.md")).unwrap();
        let is_same = kept == page(&reports);
        assert!(is_same, "write it with `undertone bench model --out docs`");
    }

    #[test]
    fn a_file_that_is_no_report_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("benchmarks")).unwrap();
        fs::write(folder.path().join("benchmarks/model.json"), "{}").unwrap();
        let error = Folder::new(folder.path())
            .write_page()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("benchmarks/model.json is not a report of this version"),
            "{error}"
        );
    }
}
