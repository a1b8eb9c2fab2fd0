//! A session without models: it detects loud and quiet audio, and answers with a tone.

use serde_json::{Map, json};
use std::sync::Arc;
use tokio::sync::mpsc;
use undertone::conversation::{
    CallId, ClauseId, EndOfTurnRule, Event, HangUpReason, Input, ItemId, Micros, NewItem,
    ResponseStatus, Samples, Time, TurnId,
};
use undertone::llm::TokenUsage;
use undertone::session::{Inbound, Outbound, SessionFactory, SessionHandle, SessionOptions};

/// Silence that ends a turn, ms.
const SILENCE_MS: u64 = 300;

/// The number of 20 ms frames in an answer.
pub(crate) const ANSWER_FRAMES: usize = 10;

/// How a session behaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Script {
    /// Call one of the server's tools in each response.
    pub(crate) server_tool: bool,
    /// Do not end a response before it is cancelled.
    pub(crate) endless: bool,
    /// Send audio as fast as it is accepted.
    pub(crate) flood: bool,
    /// Ignore the server's shutdown.
    pub(crate) stuck: bool,
}

/// Opens scripted sessions.
pub(crate) fn factory(script: Script) -> SessionFactory {
    Arc::new(move |options| {
        let (inbound, requests) = mpsc::channel(64);
        let (out, outbound) = mpsc::channel(64);
        tokio::spawn(Scripted::new(script, options, out).run(requests));
        Ok(SessionHandle {
            inbound,
            outbound,
            span: tracing::Span::none(),
        })
    })
}

struct Scripted {
    script: Script,
    options: SessionOptions,
    out: mpsc::Sender<Outbound>,
    ids: u64,
    heard_ms: f64,
    quiet_ms: f64,
    speaking: bool,
    by_hand: bool,
    tool: Option<String>,
    output: Option<String>,
    open: Option<ItemId>,
}

impl Scripted {
    fn new(script: Script, options: SessionOptions, out: mpsc::Sender<Outbound>) -> Self {
        Self {
            script,
            options,
            out,
            ids: 0,
            heard_ms: 0.0,
            quiet_ms: 0.0,
            speaking: false,
            by_hand: false,
            tool: None,
            output: None,
            open: None,
        }
    }

    async fn run(mut self, mut requests: mpsc::Receiver<Inbound>) {
        while let Some(inbound) = requests.recv().await {
            match inbound {
                Inbound::Audio(samples) => self.audio(&samples).await,
                Inbound::Request(Input::Drain | Input::Farewell) if self.script.stuck => {}
                Inbound::Request(Input::Drain | Input::Farewell) => {
                    return self.send(Outbound::HangUp(HangUpReason::Shutdown)).await;
                }
                Inbound::Spoken { item, .. } => self.request(*item).await,
                Inbound::Request(request) => self.request(request).await,
            }
            if self.script.flood {
                return self.flood().await;
            }
        }
    }

    async fn send(&self, outbound: Outbound) {
        // The transport may be gone.
        let _ = self.out.send(outbound).await;
    }

    async fn tell(&self, event: Event) {
        let at = Time(self.heard_ms as u64 * 1_000);
        self.send(Outbound::Event { at, event }).await;
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn now(&self) -> Samples {
        Samples::from_ms(self.heard_ms as u64)
    }

    async fn audio(&mut self, samples: &[i16]) {
        let ms = samples.len() as f64 * 1000.0 / f64::from(self.options.input_rate);
        let loud = samples.iter().any(|sample| sample.unsigned_abs() > 1000);
        if loud && !self.speaking {
            self.speaking = true;
            self.tell(Event::SpeechStarted { at: self.now() }).await;
            self.tell(Event::PartialTranscript {
                text: "what is".into(),
            })
            .await;
        }
        self.heard_ms += ms;
        self.quiet_ms = if loud { 0.0 } else { self.quiet_ms + ms };
        if self.speaking && self.quiet_ms >= SILENCE_MS as f64 && !self.by_hand {
            self.end_turn().await;
        }
    }

    async fn end_turn(&mut self) {
        if std::mem::take(&mut self.speaking) {
            self.tell(Event::SpeechStopped { at: self.now() }).await;
        }
        let item = ItemId(self.id());
        let text = "What is the weather in Paris?".to_owned();
        self.tell(Event::UserItem {
            item,
            text,
            spoken: true,
        })
        .await;
        if !self.by_hand {
            self.respond().await;
        }
    }

    async fn respond(&mut self) {
        let (turn, item) = (TurnId(self.id()), ItemId(self.id()));
        self.tell(Event::ResponseStarted {
            turn,
            requested: true,
            opens: false,
        })
        .await;
        self.tell(Event::AgentItemStarted { item }).await;
        self.open = Some(item);
        self.say(item, "Let me see.").await;
        self.tone(item).await;
        if self.script.endless {
            return;
        }
        self.finish(item, false).await;
        match (self.tool.clone(), self.output.take()) {
            (Some(tool), None) => self.call(tool, true).await,
            _ if self.script.server_tool => self.call("get_weather".into(), false).await,
            _ => {}
        }
        self.done(ResponseStatus::Completed).await;
    }

    async fn say(&mut self, item: ItemId, text: &str) {
        let clause = ClauseId(self.id());
        self.tell(Event::AgentSpeech {
            item,
            clause,
            text: text.into(),
        })
        .await;
    }

    async fn tone(&mut self, item: ItemId) {
        let samples = vec![4000; self.options.output_rate as usize / 50];
        for _ in 0..ANSWER_FRAMES {
            let clause = ClauseId(0);
            self.send(Outbound::Audio {
                item,
                clause,
                samples: samples.clone(),
            })
            .await;
        }
    }

    async fn finish(&mut self, item: ItemId, interrupted: bool) {
        self.open = None;
        let text = "Let me see.".to_owned();
        self.tell(Event::AgentItemDone {
            item,
            text,
            interrupted,
        })
        .await;
    }

    async fn done(&mut self, status: ResponseStatus) {
        let turn = TurnId(self.ids);
        self.tell(Event::ResponseDone {
            turn,
            status,
            latency: Box::default(),
            usage: TokenUsage {
                input: 100,
                cached: 40,
                output: 10,
                ..TokenUsage::default()
            },
        })
        .await;
    }

    async fn call(&mut self, name: String, by_client: bool) {
        let (item, call) = (ItemId(self.id()), CallId(self.id()));
        let arguments: Map<_, _> = [("city".to_owned(), json!("Paris"))].into_iter().collect();
        self.tell(Event::ToolCalled {
            item,
            call,
            name,
            arguments,
            by_client,
            run: None,
        })
        .await;
        if !by_client {
            let result = Ok(json!({"degrees": 21}));
            self.tell(Event::ToolFinished { item, call, result }).await;
        }
    }

    async fn request(&mut self, request: Input) {
        match request {
            Input::Configure(settings) => {
                if let Some(tools) = settings.tools {
                    self.tool = tools.into_iter().next().map(|tool| tool.name);
                }
                if let Some(detection) = settings.turn_detection {
                    self.by_hand = detection.rule == EndOfTurnRule::Client;
                }
            }
            Input::CommitAudio => {
                self.tell(Event::AudioCommitted).await;
                self.end_turn().await;
            }
            Input::ClearAudio => self.tell(Event::AudioCleared).await,
            Input::AddItem { id, item, .. } => self.add(id, item).await,
            Input::DeleteItem { item } => self.tell(Event::ItemDeleted { item }).await,
            Input::Truncate { item, heard } => self.truncate(item, heard).await,
            Input::Respond { .. } | Input::RespondWith(_) => self.respond().await,
            Input::ClientBack { .. } => self.tell(Event::ClientReturned).await,
            Input::CancelResponse => {
                if let Some(item) = self.open {
                    self.send(Outbound::Clear).await;
                    self.finish(item, true).await;
                    self.done(ResponseStatus::Cancelled).await;
                }
            }
            _ => {}
        }
    }

    async fn add(&mut self, id: Option<ItemId>, item: NewItem) {
        match item {
            NewItem::ToolOutput { output, .. } => self.output = Some(output.to_string()),
            NewItem::System { text } if text == "refuse" => {
                let message = "not this one".to_owned();
                return self
                    .tell(Event::Refused {
                        request: "add_item".into(),
                        message,
                    })
                    .await;
            }
            _ => {}
        }
        let item = id.unwrap_or_else(|| ItemId(self.id()));
        self.tell(Event::ItemAdded { item }).await;
    }

    async fn truncate(&mut self, item: ItemId, heard: Micros) {
        self.tell(Event::ItemTruncated {
            item,
            heard,
            text: "Let me".into(),
        })
        .await;
    }

    async fn flood(&mut self) {
        let item = ItemId(self.id());
        let samples = vec![4000; self.options.output_rate as usize / 50];
        self.tell(Event::ResponseStarted {
            turn: TurnId(0),
            requested: true,
            opens: false,
        })
        .await;
        self.tell(Event::AgentItemStarted { item }).await;
        let audio = Outbound::Audio {
            item,
            clause: ClauseId(0),
            samples,
        };
        while self.out.send(audio.clone()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
