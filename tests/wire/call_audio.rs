//! Tests recordings of calls as sound.

use crate::support::live::{self, Call, said, without_models};
use crate::support::{Server, local};
use std::path::Path;
use std::sync::Arc;
use undertone::llm::scripted::{Cue, Scripted, Step};
use undertone::server::App;
use undertone::session::{self, Builders, CallRecordings, Engines, Observers};

/// Both sides of the only recording in the folder.
fn sides(folder: &Path) -> [Vec<i16>; 2] {
    let files: Vec<_> = folder.read_dir().expect("the folder").collect();
    assert_eq!(files.len(), 1, "one call, one file");
    let path = files[0].as_ref().expect("a file").path();
    let mut wav = hound::WavReader::open(path).expect("a WAV file");
    assert_eq!((wav.spec().channels, wav.spec().sample_rate), (2, 16_000));
    let samples: Vec<i16> = wav
        .samples()
        .map(|sample| sample.expect("a sample"))
        .collect();
    [0, 1].map(|side| samples.iter().skip(side).step_by(2).copied().collect())
}

/// When a side is heard, ms: first and last.
fn heard(side: &[i16]) -> (usize, usize) {
    let is_loud = |sample: &i16| sample.unsigned_abs() > 100;
    let first = side.iter().position(is_loud).expect("sound");
    let last = side.iter().rposition(is_loud).expect("sound");
    (first / 16, last / 16)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_recorded_with_both_sides_on_one_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = CallRecordings::new(folder.path(), "This call is recorded.".into(), Vec::new());
    let story = "One two three four five six seven eight nine ten. ".repeat(8);
    let llm = Scripted::default()
        .on(Cue::Turn(1), format!("<speech>{story}</speech>"))
        .on(Cue::Turn(2), Step::Hang);
    let engines = Engines::start(Builders {
        observers: Observers {
            calls: Some(calls.expect("the folder")),
            ..Observers::default()
        },
        ..without_models(Arc::new(llm))
    })
    .expect("engines");
    let opener = engines.clone();
    let sessions = Arc::new(move |options| Ok(session::open(&opener, &options)));
    let server = Server::serve(App::new(local(), sessions));
    let mut call = Call::to(&server).await;
    let consent = call.until("response.done").await;
    assert_eq!(said(&consent), "This call is recorded.");
    call.say(&live::tone(600)).await;
    let mut ms = 0;
    while ms < 2_000 {
        ms += call.next().await.audio_ms();
    }
    call.say(&live::tone(600)).await;
    let sent: u64 = call
        .until("response.done")
        .await
        .iter()
        .map(|e| e.audio_ms())
        .sum();
    // The recording goes on: the second piece begins when the first has been spoken.
    call.say(&[0; 24 * 300]).await;
    call.say(&[0; 24 * 20]).await;
    drop(call);
    engines.finish_sessions().await;
    let [user, agent] = sides(folder.path());
    let ((asks, interrupts), (consents, stops)) = (heard(&user), heard(&agent));
    assert!(consents < asks, "the phrase comes first");
    assert!(asks < stops && stops < interrupts + 1_000);
    let length = user.len() / 16;
    assert!(stops < length, "{stops} of {length} ms");
    println!("{} ms sent, heard until {stops} ms", ms + sent);
}
