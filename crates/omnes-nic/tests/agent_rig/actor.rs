//! Processes of an ordinary user that borrow slots or misbehave.

use super::super::common::IS_V6;
use super::super::common::group::{GROUP, barrier_plan, socket_address};
use super::super::common::hosts::Host;
use super::{NOBODY, bind, enter, wait_done};
use omnes_nic::agent::limits::PROTOCOL_VERSION;
use omnes_nic::agent::{Client, Lent, LentQueue, SOCKET_NAME};
use omnes_nic::{MemberPlan, Nic, Preference, QueuePlan, SlotPlan};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

const ROLE: &str = "TEST_ACTOR";

/// A process of an ordinary user inside a host; killed when dropped.
pub struct Actor {
    pub process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts a process of a user. `given` becomes its descriptor 3.
    pub fn start_as(host: &Host, user: u32, given: Option<BorrowedFd<'_>>) -> Self {
        let given = given.map(|it| it.as_raw_fd());
        host.inside(|| {
            let mut command = Command::new("/proc/self/exe");
            let test = if IS_V6 { "agent::plays_an_actor" } else { "plays_an_actor" };
            command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
            command.env(ROLE, "1").uid(user).gid(user);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            // SAFETY: duplicates a descriptor, between fork and exec.
            unsafe {
                command.pre_exec(move || match given {
                    // If it has that number already, it would be closed nevertheless.
                    Some(given)
                        if libc::dup2(given, 3) < 0 || libc::fcntl(3, libc::F_SETFD, 0) < 0 =>
                    {
                        Err(std::io::Error::last_os_error())
                    }
                    _ => Ok(()),
                })
            };
            let mut process = command.spawn().unwrap();
            let orders = process.stdin.take().unwrap();
            let answers = BufReader::new(process.stdout.take().unwrap());
            let mut actor = Self { process, orders, answers };
            assert_eq!(actor.hear(), "ready");
            actor
        })
    }

    pub fn start(host: &Host) -> Self {
        Self::start_as(host, NOBODY, None)
    }

    /// Sends an order and returns the answer.
    pub fn tell(&mut self, order: &str) -> String {
        self.order(order);
        self.hear()
    }

    /// Sends an order.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// The next answer; lines of the test harness are skipped.
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the actor has ended");
            if let Some((_, answer)) = line.trim_end().split_once("actor: ") {
                return answer.to_owned();
            }
        }
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn answer(text: impl std::fmt::Display) {
    println!("actor: {text}");
}

fn told<T>(result: Result<T, impl std::fmt::Display>, well: &str) -> Option<T> {
    match result {
        Ok(value) => {
            answer(well);
            Some(value)
        }
        Err(error) => {
            answer(error);
            None
        }
    }
}

/// The state of an actor.
#[derive(Default)]
struct State {
    socket: Option<UdpSocket>,
    lent: Vec<Lent>,
    queues: Vec<LentQueue>,
    client: Option<Arc<Client>>,
    kept: Vec<OwnedFd>,
    listener: Option<TcpListener>,
    name: Option<UnixListener>,
    raw: Option<UnixStream>,
}

/// Must be called by a test named `plays_an_actor` in each test program.
pub fn play() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    answer("ready");
    let mut state = State::default();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0] {
            "borrow" => state.borrow(number(1), number(2)),
            "borrow-port-of" => state.borrow_with(number(1), &bind_any()),
            "borrow-given" => {
                // SAFETY: the descriptor was passed on by the process that has started this one.
                let given = unsafe { UdpSocket::from_raw_fd(3) };
                state.borrow_with(number(1), &given);
            }
            "borrow-at" => state.borrow_at(words[1].parse().unwrap()),
            "borrow-group" => state.borrow_group(words[1].parse().unwrap()),
            "borrow-and-unbind" => state.borrow_and_unbind(),
            "return-number" => state.return_number(number(1)),
            "borrow-queue" => state.borrow_queue(),
            "barriers" => state.barriers(number(1), number(2)),
            "return" => {
                state.lent.clear();
                state.queues.clear();
                answer("returned");
            }
            "obtain" => state.obtain(),
            "manage" => state.manage(),
            "linger" => state.linger(),
            "half" => state.raw(format!("{{\"version\":{PROTOCOL_VERSION},").as_bytes()),
            "garbage" => state.raw(b"\xff\x00 no request\n"),
            "endless" => state.endless(),
            "deaf" => state.deaf(),
            "crowd" => state.crowd(number(1)),
            "hoard" => state.hoard(number(1)),
            "seat" => state.squat(),
            "fork" => fork(),
            other => panic!("no order {other}"),
        }
    }
    std::process::exit(0);
}

/// A child that only holds what it has inherited.
fn fork() {
    // SAFETY: the child only makes system calls until it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    answer(child);
}

fn bind_any() -> UdpSocket {
    UdpSocket::bind(if IS_V6 { "[::]:0" } else { "0.0.0.0:0" }).unwrap()
}

fn agent_stream() -> UnixStream {
    let address = UnixAddress::from_abstract_name(SOCKET_NAME).unwrap();
    UnixStream::connect_addr(&address).unwrap()
}

fn lend_request(plan: &str) -> String {
    format!("{{\"version\":{PROTOCOL_VERSION},\"op\":\"lend\",\"plan\":{plan}}}\n")
}

/// Sends a request with a descriptor.
fn send_with(agent: &UnixStream, request: &str, given: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let given = [given];
    assert!(control.push(SendAncillaryMessage::ScmRights(&given)));
    let request = IoSlice::new(request.as_bytes());
    let sent = sendmsg(agent, &[request], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, request.len());
}

impl State {
    fn client(&mut self) -> Arc<Client> {
        let connect = || Arc::new(Client::connect().unwrap());
        Arc::clone(self.client.get_or_insert_with(connect))
    }

    /// Borrows a slot for member `index` of `size`.
    fn borrow(&mut self, index: usize, size: usize) {
        let client = self.client();
        let socket = self.socket.get_or_insert_with(|| bind(index));
        let plan = barrier_plan(index, size, "dissemination", false);
        let lent = client.lend(&plan, socket.as_fd(), None);
        self.lent.extend(told(lent, "lent"));
    }

    /// Borrows the slot of member `index` with another socket than its own.
    fn borrow_with(&mut self, index: usize, socket: &UdpSocket) {
        let plan = barrier_plan(index, 2, "dissemination", false);
        let lent = self.client().lend(&plan, socket.as_fd(), None);
        self.lent.extend(told(lent, "lent"));
    }

    /// Borrows a slot for the port of member 0 at another address of its host.
    fn borrow_at(&mut self, address: IpAddr) {
        let mut plan = barrier_plan(0, 2, "dissemination", false);
        plan.socket.set_ip(address);
        let socket = UdpSocket::bind(plan.socket).unwrap();
        let lent = self.client().lend(&plan, socket.as_fd(), None);
        self.lent.extend(told(lent, "lent"));
    }

    /// Borrows a slot for a group at a port.
    fn borrow_group(&mut self, port: u16) {
        let mut plan = barrier_plan(0, 2, "counter", true);
        let socket = UdpSocket::bind((plan.socket.ip(), 0)).unwrap();
        plan.socket.set_port(socket.local_addr().unwrap().port());
        let group = SocketAddr::new(GROUP.ip(), port);
        plan.group = Some(group);
        let receiver = UdpSocket::bind(group).unwrap();
        let lent = self.client().lend(&plan, socket.as_fd(), Some(receiver.as_fd()));
        self.lent.extend(told(lent, "lent"));
    }

    /// Borrows a slot of another job by hand, at a port that is then given up immediately.
    fn borrow_and_unbind(&mut self) {
        let mut plan = barrier_plan(0, 2, "dissemination", false);
        plan.job += 1;
        let socket = UdpSocket::bind((plan.socket.ip(), 0)).unwrap();
        plan.socket.set_port(socket.local_addr().unwrap().port());
        let plan = serde_json::to_string(&plan).unwrap();
        let agent = agent_stream();
        send_with(&agent, &lend_request(&plan), socket.as_fd());
        let mut said = String::new();
        BufReader::new(&agent).read_line(&mut said).unwrap();
        give_port_up(&socket);
        answer(said.trim_end());
        self.raw = Some(agent);
    }

    /// Borrows a queue for one socket.
    fn borrow_queue(&mut self) {
        let socket = UdpSocket::bind((socket_address(0).ip(), 0)).unwrap();
        let mut address = socket_address(0);
        address.set_port(socket.local_addr().unwrap().port());
        let plan = QueuePlan { job: 1, sockets: vec![address], group: None };
        let lent = self.client().lend_queue(&plan, &[socket.as_fd()]);
        self.queues.extend(told(lent, "lent"));
    }

    /// Returns a slot by its number over the connection that was made by hand.
    fn return_number(&mut self, slot: usize) {
        let agent = self.raw.as_mut().unwrap();
        let line = format!(r#"{{"version":{PROTOCOL_VERSION},"op":"return","slot":{slot}}}"#);
        writeln!(agent, "{line}").unwrap();
        answer("returned");
    }

    /// Takes as many ports as possible.
    fn hoard(&mut self, count: usize) {
        let address = if IS_V6 { "[::1]:0" } else { "127.0.0.1:0" };
        let hoarded = (0..count).map_while(|_| UdpSocket::bind(address).ok());
        self.kept.extend(hoarded.map(OwnedFd::from));
        answer(self.kept.len());
    }

    fn barriers(&mut self, index: usize, count: usize) {
        let page = self.lent[0].page();
        let first = page.done() + 1;
        for epoch in first..first + count as u32 {
            enter(self.socket.as_ref().unwrap(), index, epoch);
            wait_done(page, epoch);
        }
        answer(format!("done {}", page.done()));
    }

    fn obtain(&mut self) {
        let obtained = Nic::obtain(Preference::Any).map(|nic| format!("{:?}", nic.form()));
        answer(obtained.unwrap_or_else(|error| error.to_string()));
    }

    /// Asks for what only root may ask for.
    fn manage(&mut self) {
        let client = self.client();
        let refused = [client.attach("eth0"), client.detach("eth0", true), client.end()];
        let report = client.report().unwrap();
        let refused = refused.iter().filter(|result| {
            result.as_ref().is_err_and(|error| error.to_string().contains("for root"))
        });
        answer(format!("{} refused, {} hidden", refused.count(), report.hidden));
    }

    /// Hands over a TCP socket whose closing takes ten minutes.
    fn linger(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 1 << 16]).is_ok() {}
        let linger = std::time::Duration::from_secs(600);
        socket2::SockRef::from(&stream).set_linger(Some(linger)).unwrap();
        // By hand, so that the agent is the last owner.
        let agent = agent_stream();
        let plan = serde_json::to_string(&barrier_plan(0, 2, "dissemination", false)).unwrap();
        send_with(&agent, &lend_request(&plan), stream.as_fd());
        drop(stream);
        let mut said = String::new();
        BufReader::new(&agent).read_line(&mut said).unwrap();
        answer(said.trim_end());
        self.kept.push(agent.into());
        self.listener = Some(listener);
    }

    /// Sends bytes; then reports whether the agent closes the connection, and its answer.
    fn raw(&mut self, bytes: &[u8]) {
        let mut stream = agent_stream();
        stream.write_all(bytes).unwrap();
        let mut said = String::new();
        match BufReader::new(&stream).read_line(&mut said) {
            Ok(0) | Err(_) => answer("closed"),
            Ok(_) => answer(said.trim_end()),
        }
    }

    /// Sends a request that never ends.
    fn endless(&mut self) {
        let mut stream = agent_stream();
        while stream.write(&[b' '; 1 << 16]).is_ok() {}
        answer("closed");
    }

    /// Sends requests without end, and never reads.
    fn deaf(&mut self) {
        let mut stream = agent_stream();
        let line = format!("{{\"version\":{PROTOCOL_VERSION},\"op\":\"list\"}}\n");
        while stream.write(line.as_bytes()).is_ok() {}
        answer("closed");
    }

    /// Reports how many connections are served.
    fn crowd(&mut self, count: usize) {
        let mut clients = Vec::new();
        let mut reason = String::new();
        for _ in 0..count {
            match Client::connect() {
                Ok(client) => clients.push(client),
                Err(error) => reason = error.to_string(),
            }
        }
        answer(format!("{} served; {reason}", clients.len()));
    }

    /// Takes the agent's name.
    fn squat(&mut self) {
        let address = UnixAddress::from_abstract_name(SOCKET_NAME).unwrap();
        self.name = Some(UnixListener::bind_addr(&address).unwrap());
        answer("seated");
    }
}

/// Unbinds a socket whose port the kernel has chosen; any descriptor of it will do.
pub fn give_port_up(socket: &UdpSocket) {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    let bytes = size_of_val(&nowhere) as libc::socklen_t;
    // SAFETY: the address has the given length.
    assert_eq!(unsafe { libc::connect(socket.as_raw_fd(), &raw const nowhere, bytes) }, 0);
}

/// A plan with `count` members, which have no addresses of their own.
pub fn with_members(plan: &SlotPlan, count: usize) -> SlotPlan {
    let more = (0..count as u32).map(|rank| MemberPlan { rank, index: 1, key: [7; 16] });
    let own = plan.members.iter().find(|member| member.rank == plan.rank).unwrap().clone();
    let members = more.filter(|member| member.rank != plan.rank).take(count - 1);
    SlotPlan { members: members.chain([own]).collect(), ..plan.clone() }
}

/// The plan with its socket at another port.
pub fn at_port(plan: &SlotPlan, index: usize, port: u16) -> SlotPlan {
    let mut plan = plan.clone();
    plan.socket = socket_address(index);
    plan.socket.set_port(port);
    plan
}
