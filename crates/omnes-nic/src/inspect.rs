//! Inspection of loaded programs: runs on single packets, sizes, run time.

use crate::error::{NicError, checked};
use crate::kernel::Kernel;
use omnes_wire::CARRIED_MAX;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Words of the kernel's `struct __sk_buff`, and the positions of some of them.
const CONTEXT_WORDS: usize = 48;
const CONTEXT_MARK: usize = 2;
const CONTEXT_INTERFACE: usize = 10;
const CONTEXT_TRAIN: usize = 44;

/// A packet for a test run, and its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TestPacket<'a> {
    /// The packet from its Ethernet header on, at least 14 bytes.
    pub bytes: &'a [u8],
    /// `skb->mark`.
    pub mark: u32,
    /// The interface it is at; 0 for the loopback interface of the caller's network namespace.
    pub interface: u32,
    /// Payload bytes of each packet of a train; 0 for a single packet.
    pub train_bytes: u32,
}

/// Outcome of a packet's test run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRun {
    /// The program's verdict, a `TC_ACT_` number; -1 lets the packet continue.
    pub verdict: i32,
    /// The packet after the run.
    pub bytes: Vec<u8>,
    /// Its mark after the run.
    pub mark: u32,
    /// Mean time per run.
    pub time: Duration,
}

/// Figures of a loaded program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramInfo {
    /// Instructions of the program with all its functions, as the kernel runs them.
    pub instructions: u32,
    /// Instructions that the verifier processed, over all paths; the limit is a million.
    pub verified: u32,
    /// Bytes of machine code.
    pub machine_bytes: u32,
    /// Time spent in the program, while [`Statistics`] were kept.
    pub run_time: Duration,
    /// Number of its runs, likewise.
    pub runs: u64,
}

/// While this value lives, the kernel counts runs and time of all programs of the machine, which
/// costs each run some 20 ns more.
pub struct Statistics {
    _descriptor: OwnedFd,
}

impl Statistics {
    /// Begins counting.
    ///
    /// # Errors
    /// [`NicError::System`] if the kernel refuses, as it does without CAP_SYS_ADMIN.
    pub fn keep() -> Result<Self, NicError> {
        // SAFETY: a system call with a number.
        let code = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        let code =
            checked(code).map_err(|source| NicError::System { what: "statistics", source })?;
        // SAFETY: a new descriptor that nobody else has.
        Ok(Self { _descriptor: unsafe { OwnedFd::from_raw_fd(code) } })
    }
}

impl Kernel {
    /// Runs a program on a packet, without any network, `repeat` times, at least once; returns the
    /// outcome of the last run. Clones do leave, through the interface.
    ///
    /// # Errors
    /// [`NicError::System`] if the kernel refuses.
    ///
    /// # Panics
    /// If no program has that name.
    pub fn test_run_with(
        &self,
        program: &str,
        packet: TestPacket<'_>,
        repeat: u32,
    ) -> Result<TestRun, NicError> {
        // The answer to a request may carry words, which the request does not.
        let mut out = vec![0; packet.bytes.len() + 8 * CARRIED_MAX];
        let mut context = [0u32; CONTEXT_WORDS];
        context[CONTEXT_MARK] = packet.mark;
        context[CONTEXT_INTERFACE] = packet.interface;
        context[CONTEXT_TRAIN] = packet.train_bytes;
        let mut context_out = context;
        let context_bytes = size_of_val(&context) as u32;
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: packet.bytes.as_ptr().cast(),
            data_size_in: packet.bytes.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            ctx_in: context.as_ptr().cast(),
            ctx_size_in: context_bytes,
            ctx_out: context_out.as_mut_ptr().cast(),
            ctx_size_out: context_bytes,
            repeat: repeat as i32,
            ..Default::default()
        };
        let program = self.program(program).as_raw_fd();
        // SAFETY: the options point to buffers of the lengths given.
        let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
        checked(code).map_err(|source| NicError::System { what: "test run", source })?;
        out.truncate(options.data_size_out as usize);
        let verdict = options.retval as i32;
        let time = Duration::from_nanos(options.duration.into());
        Ok(TestRun { verdict, bytes: out, mark: context_out[CONTEXT_MARK], time })
    }

    /// Names of the programs, in the order of the object.
    pub fn program_names(&self) -> Vec<String> {
        let programs = self.object().progs();
        programs.map(|program| program.name().to_string_lossy().into_owned()).collect()
    }

    /// Figures of a program.
    ///
    /// # Errors
    /// [`NicError::System`] if the kernel refuses.
    ///
    /// # Panics
    /// If no program has that name.
    pub fn program_info(&self, program: &str) -> Result<ProgramInfo, NicError> {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut bytes = size_of::<libbpf_sys::bpf_prog_info>() as u32;
        let program = self.program(program).as_raw_fd();
        // SAFETY: the kernel writes at most `bytes` bytes.
        let code = unsafe {
            libbpf_sys::bpf_obj_get_info_by_fd(program, (&raw mut info).cast(), &raw mut bytes)
        };
        checked(code).map_err(|source| NicError::System { what: "program info", source })?;
        Ok(ProgramInfo {
            instructions: info.xlated_prog_len / 8,
            verified: info.verified_insns,
            machine_bytes: info.jited_prog_len,
            run_time: Duration::from_nanos(info.run_time_ns),
            runs: info.run_cnt,
        })
    }
}
