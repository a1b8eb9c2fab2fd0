//! Faults that tests inject: a random moment for them, and a proxy that resets connections or falls silent.

use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use undertone::dice::Dice;

/// A duration of less than `ms`.
pub(crate) fn time_below(dice: &mut Dice, ms: u64) -> Duration {
    Duration::from_micros(dice.below(ms * 1_000))
}

/// The way of bytes through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// A reset of both sides of a connection as soon as so many bytes have gone this way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) way: Way,
    pub(crate) after: u64,
    /// Also of all later connections, and not only of the first one.
    pub(crate) every: bool,
}

/// A proxy in front of a server.
pub(crate) struct Cutter {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    server: SocketAddr,
    cut: Mutex<Option<Cut>>,
    /// Of connections from now on.
    silence: Mutex<Silence>,
    connections: AtomicUsize,
    /// The bytes of the first connection, to the server and to the client.
    first: [AtomicU64; 2],
}

/// A time in which a connection carries nothing, although it is open.
#[derive(Clone, Default)]
struct Silence {
    begins: CancellationToken,
    ends: CancellationToken,
}

impl Cutter {
    /// A proxy that lets everything through to `server`.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            server,
            cut: Mutex::new(None),
            silence: Mutex::default(),
            connections: AtomicUsize::new(0),
            first: Default::default(),
        });
        let serving = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(client));
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    /// Cuts connections from now on; the next one is the first.
    pub(crate) fn cut(&self, cut: Cut) {
        *self.state.cut.lock().expect("whole") = Some(cut);
        self.state.connections.store(0, SeqCst);
    }

    /// Lets nothing through any more on the connections so far, without closing them. What has arrived meanwhile goes
    /// on when the token is cancelled that this returns.
    pub(crate) fn fall_silent(&self) -> CancellationToken {
        let mut silence = self.state.silence.lock().expect("whole");
        let Silence { begins, ends } = std::mem::take(&mut *silence);
        begins.cancel();
        ends
    }

    /// The bytes that the first connection has carried this way.
    pub(crate) fn carried(&self, way: Way) -> u64 {
        self.state.first[way as usize].load(SeqCst)
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    async fn serve(self: Arc<Self>, mut client: TcpStream) {
        let is_first = self.connections.fetch_add(1, SeqCst) == 0;
        let cut = *self.cut.lock().expect("whole");
        let cut = cut.filter(|cut| cut.every || is_first);
        let silence = self.silence.lock().expect("whole").clone();
        let Ok(mut server) = TcpStream::connect(self.server).await else {
            return;
        };
        let most = |way| match cut {
            Some(cut) if cut.way == way => cut.after,
            _ => u64::MAX,
        };
        let counted = |way: Way| is_first.then_some(&self.first[way as usize]);
        let is_cut = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let up = carry(
                from_client,
                to_server,
                most(Way::ToServer),
                counted(Way::ToServer),
            );
            let down = carry(
                from_server,
                to_client,
                most(Way::ToClient),
                counted(Way::ToClient),
            );
            let both = async {
                tokio::pin!(up, down);
                tokio::select! {
                    cut = &mut up => cut || down.await,
                    cut = &mut down => cut || up.await,
                }
            };
            tokio::pin!(both);
            tokio::select! {
                biased;
                () = silence.begins.cancelled() => {
                    silence.ends.cancelled().await;
                    both.await
                }
                is_cut = &mut both => is_cut,
            }
        };
        if is_cut {
            for socket in [&client, &server] {
                let reset = SockRef::from(socket).set_linger(Some(Duration::ZERO));
                reset.expect("a socket");
            }
        }
    }
}

/// Carries at most `most` bytes. Returns whether there were as many.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    most: u64,
    count: Option<&AtomicU64>,
) -> bool {
    let mut left = most;
    let mut piece = [0; 4096];
    while left > 0 {
        let room = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let Ok(read @ 1..) = from.read(&mut piece[..room]).await else {
            let _ = to.shutdown().await;
            return false;
        };
        if to.write_all(&piece[..read]).await.is_err() {
            return false;
        }
        left -= read as u64;
        if let Some(count) = count {
            count.fetch_add(read as u64, SeqCst);
        }
    }
    true
}
