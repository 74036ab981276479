//! Plain MPI programs with the preload library on one machine, for each installed MPI.
//!
//! The programs do not depend on Omnes and check their own results; the library's report shows
//! whether Omnes was involved, so that no test passes with nothing preloaded. If an MPI is missing,
//! its part prints `skipped: needs Open MPI`, which `OMNES_REQUIRE=mpi` turns into a failure. Jobs
//! across hosts with packet loss are in `omnes-cli/tests/mpi.rs`.

#![allow(clippy::unwrap_used)]

mod mpis;
mod preload;

use omnes_mpi::{Library, Mpi};
use preload::{Job, Line, Outcome, Site, assert_gone, processes_with, sites};
use std::collections::BTreeSet;
use std::path::Path;

/// A few blocking and nonblocking broadcasts and barriers on `MPI_COMM_WORLD`, all checked.
const FEW: &str = "--check --iterations 5 --warmup 1 --sizes 8,4k";

/// Runs a few calls on two ranks.
fn few(site: &Site, job: &Job) -> Outcome {
    job.succeed(&site.program("collbench"), FEW)
}

#[test]
fn other_pending_operations_progress_while_a_call_waits() {
    for site in sites() {
        for memory in ["off", "on"] {
            let job = Job::preloaded(&site, 3).with("OMNES_MPI_ONE_NODE", "on");
            let outcome = job.with("OMNES_SHM", memory).succeed(&site.program("progress"), "");
            outcome.line("progress: ok");
            let world = outcome.world();
            assert!(world.bcasts.taken > 1000 && world.barriers.are_taken(), "{world:?}");
        }
    }
}

#[test]
fn mpi_progresses_during_calls_that_do_not_wait() {
    for site in sites() {
        // A receiver in shared memory needs no help from the sender.
        let job = Job::spread(&site, 2).with("OMPI_MCA_btl", "tcp,self");
        let case = "send_under_calls_that_wait_for_nothing";
        job.succeed(&site.program("progress"), case).line("progress: ok");
    }
}

#[test]
fn unusual_but_legal_calls_behave_as_in_the_mpi() {
    for site in sites() {
        let program = site.program("edges");
        Job::plain(&site, 2).succeed(&program, "").line("edges: ok");
        let outcome = Job::spread(&site, 2).succeed(&program, "");
        outcome.line("edges: ok");
        assert!(outcome.report().iter().any(|line| line.bcasts.taken > 1000), "{outcome:?}");
        let outcome = Job::spread(&site, 2).succeed(&program, "late");
        outcome.line("edges: ok");
        assert!(outcome.report().is_empty(), "{outcome:?}");
    }
}

#[test]
fn threads_polling_one_request_see_one_completion() {
    for site in sites() {
        let program = site.program("watched");
        Job::plain(&site, 2).succeed(&program, "").line("watched: ok");
        let outcome = Job::spread(&site, 2).succeed(&program, "");
        outcome.line("watched: ok");
        assert!(outcome.world().bcasts.taken > 1000, "{outcome:?}");
    }
}

/// Asserts that `mix` has the same results plain and preloaded.
fn assert_same_with_and_without(site: &Site, ranks: u32, arguments: &str) {
    let program = site.program("mix");
    let plain = Job::plain(site, ranks).succeed(&program, arguments);
    assert!(plain.report().is_empty(), "{plain:?}");
    let preloaded = Job::spread(site, ranks).succeed(&program, arguments);
    assert_eq!(plain.line("mix: seed"), preloaded.line("mix: seed"), "{arguments}");
    let taken: u64 = preloaded.report().iter().map(|line| line.bcasts.taken).sum();
    assert!(taken > 10, "{arguments}: {preloaded:?}");
}

#[test]
fn communicators_with_few_short_calls_are_not_connected() {
    for site in sites() {
        let program = site.program("brief");
        Job::plain(&site, 3).succeed(&program, "").line("brief: ok");
        let job = Job::preloaded(&site, 3).with("OMNES_MPI_ONE_NODE", "on");
        let outcome = job.succeed(&program, "");
        outcome.line("brief: ok");
        assert!(outcome.world().barriers.are_taken(), "{outcome:?}");
        let small = "50 communicators of one rank or of fewer than 16 calls: passed 25 barriers, \
                     50 allreduces";
        assert_eq!(outcome.small(), Some(small));
        let report = outcome.report();
        let named = |name: &str| report.iter().find(|line| line.name == name).unwrap();
        // Calls are taken from the 16th of 40 on.
        let many = named("many").allreduces;
        assert!(many.all == 40 && many.taken == 25, "{report:?}");
        assert!(named("long").bcasts.are_taken(), "{report:?}");
    }
}

#[test]
fn reductions_match_the_mpi() {
    for site in sites() {
        let program = site.program("reductions");
        Job::plain(&site, 2).succeed(&program, "").line("reductions: ok");
        for ranks in [2, 5] {
            let outcome = Job::spread(&site, ranks).succeed(&program, "");
            outcome.line("reductions: ok");
            let world = outcome.world();
            // All except errors and long data: more than 64 KiB for all ranks, and more than 1 KiB
            // in nonblocking calls.
            let passed = world.allreduces.all - world.allreduces.taken;
            assert!(world.allreduces.taken > 2000 && passed == 4 + 296, "{world:?}");
            assert!(world.reduces.taken > 1000, "{world:?}");
            assert_eq!(world.reduces.all - world.reduces.taken, 2, "{world:?}");
        }
    }
}

#[test]
fn reductions_with_mpi_only_operations_are_intercepted_and_match() {
    for site in sites() {
        let program = site.program("combinations");
        Job::plain(&site, 2).succeed(&program, "plain").line("combinations: ok");
        for (ranks, memory) in [(2, "off"), (5, "off"), (4, "on")] {
            let job = Job::spread(&site, ranks).with("OMNES_SHM", memory);
            let outcome = job.succeed(&program, "");
            outcome.line("combinations: ok");
            let world = outcome.world();
            // All except a noncommutative operation, and a nonblocking call of each kind.
            let passed = world.allreduces.all - world.allreduces.taken;
            assert!(world.allreduces.taken > 500 && passed == 8 + 1, "{world:?}");
            let passed = world.reduces.all - world.reduces.taken;
            assert!(world.reduces.taken > 250 && passed == 4 + 1, "{world:?}");
        }
    }
}

#[test]
fn reduce_scatter_results_match_the_mpi() {
    for site in sites() {
        let program = site.program("blocks");
        Job::plain(&site, 3).succeed(&program, "").line("blocks: ok");
        for (ranks, memory) in [(2, "off"), (5, "off"), (4, "on")] {
            let job = Job::spread(&site, ranks).with("OMNES_SHM", memory);
            let outcome = job.succeed(&program, "");
            outcome.line("blocks: ok");
            let blocks = outcome.world().reduce_scatters;
            // All except unequal blocks, a logical operation, long blocks, empty blocks, and an
            // error.
            assert!(blocks.taken == 140 && blocks.all == 140 + 5, "{blocks:?}");
        }
    }
}

#[test]
fn scans_match_the_mpi() {
    for site in sites() {
        let program = site.program("scans");
        Job::plain(&site, 3).succeed(&program, "").line("scans: ok");
        for ranks in [2, 5] {
            let outcome = Job::spread(&site, ranks).succeed(&program, "");
            outcome.line("scans: ok");
            let scans = outcome.world().scans;
            // All except empty data, long data, and two errors.
            assert!(scans.taken > 800 && scans.all - scans.taken == 4, "{scans:?}");
        }
        let job = Job::spread(&site, 3).with("OMNES_MPI", "scan");
        let world = job.succeed(&program, "").world();
        assert!(world.scans.taken > 800 && world.barriers.are_passed(), "{world:?}");
    }
}

#[test]
fn allgathers_match_the_mpi() {
    for site in sites() {
        let program = site.program("gathers");
        Job::plain(&site, 3).succeed(&program, "").line("gathers: ok");
        // One or two of four lengths exceed 1 KiB of all ranks, which nonblocking calls pass.
        for (ranks, long) in [(2, 1), (5, 2)] {
            let outcome = Job::spread(&site, ranks).succeed(&program, "");
            outcome.line("gathers: ok");
            let gathers = outcome.world().allgathers;
            // All except long data, empty data, and an error.
            let passed = gathers.all - gathers.taken;
            assert!(gathers.taken > 200 && passed == 3 + 64 * long, "{gathers:?}");
        }
    }
}

#[test]
fn gather_scatter_and_alltoall_match_the_mpi() {
    for site in sites() {
        let program = site.program("parts");
        Job::plain(&site, 3).succeed(&program, "plain").line("parts: ok");
        for ranks in [2, 5] {
            let outcome = Job::spread(&site, ranks).succeed(&program, "");
            outcome.line("parts: ok");
            let world = outcome.world();
            // All except long data, empty data, and errors.
            let passed = [world.gathers, world.scatters, world.alltoalls, world.allgathers]
                .map(|calls| (calls.taken > 100).then_some(calls.all - calls.taken));
            assert_eq!(passed, [Some(3), Some(2), Some(1), Some(1)], "{world:?}");
        }
    }
}

#[test]
fn gatherv_scatterv_and_alltoallv_match_the_mpi() {
    for site in sites() {
        let program = site.program("pairs");
        Job::plain(&site, 3).succeed(&program, "plain").line("pairs: ok");
        for (ranks, memory) in [(2, "off"), (5, "off"), (3, "on")] {
            let outcome = Job::spread(&site, ranks).with("OMNES_SHM", memory).succeed(&program, "");
            outcome.line("pairs: ok");
            let world = outcome.world();
            // All except errors, and alltoalls in place.
            let passed = [world.scatters, world.alltoalls]
                .map(|calls| (calls.taken > 40).then_some(calls.all - calls.taken));
            assert_eq!(passed, [Some(2), Some(42)], "{world:?}");
            assert!(world.allgathers.are_taken(), "{world:?}");
        }
    }
}

#[test]
fn alltoallv_is_correct_beyond_the_concurrent_exchange_limit() {
    for site in sites() {
        // Short parts are waited for after 32 steps, long ones after 64.
        let outcome = Job::spread(&site, 70).succeed(&site.program("pairs"), "many");
        outcome.line("pairs: ok");
        assert!(outcome.world().alltoalls.are_taken(), "{outcome:?}");
    }
}

#[test]
fn nonblocking_collectives_progress_among_other_calls() {
    for site in sites() {
        let program = site.program("started");
        Job::plain(&site, 2).succeed(&program, "").line("started: ok");
        for (ranks, memory) in [(2, "off"), (3, "on"), (5, "off"), (8, "on")] {
            let job = Job::spread(&site, ranks).with("OMNES_SHM", memory);
            let outcome = job.succeed(&program, "");
            outcome.line("started: ok");
            let report = outcome.report();
            let all = |taken: fn(&Line) -> u64| report.iter().map(taken).sum::<u64>();
            assert!(all(|line| line.allreduces.taken) > 100, "{ranks} ranks: {report:?}");
            assert!(all(|line| line.reduces.taken) > 100, "{ranks} ranks: {report:?}");
            assert!(all(|line| line.allgathers.taken) > 100, "{ranks} ranks: {report:?}");
        }
    }
}

#[test]
fn mismatched_nonblocking_collectives_are_reported() {
    for site in sites() {
        for ranks in [2, 5] {
            let outcome = Job::spread(&site, ranks).succeed(&site.program("started"), "mismatch");
            outcome.line("started: ok");
        }
    }
}

#[test]
fn random_programs_give_equal_results_with_and_without_the_library() {
    for site in sites() {
        for (ranks, seed) in [(2, 1), (2, 2), (4, 3), (4, 4)] {
            let arguments = format!("--quiet --one-clock --seed {seed} --steps 20");
            assert_same_with_and_without(&site, ranks, &arguments);
        }
    }
}

#[test]
fn random_calls_write_the_same_bytes_as_the_mpi() {
    for site in sites() {
        let program = site.program("differ");
        for (ranks, memory, seed) in [(2, "off", 1), (4, "off", 1), (3, "on", 2), (5, "off", 3)] {
            let job = Job::spread(&site, ranks).with("OMNES_SHM", memory);
            let outcome = job.succeed(&program, &format!("--seed {seed} --steps 60"));
            outcome.line("differ: ok");
            let report = outcome.report();
            let calls: [fn(&Line) -> u64; 10] = [
                |line| line.bcasts.taken,
                |line| line.barriers.taken,
                |line| line.allreduces.taken,
                |line| line.reduces.taken,
                |line| line.allgathers.taken,
                |line| line.gathers.taken,
                |line| line.scatters.taken,
                |line| line.alltoalls.taken,
                |line| line.reduce_scatters.taken,
                |line| line.scans.taken,
            ];
            let taken = calls.map(|kind| report.iter().map(kind).sum::<u64>());
            assert!(taken.iter().all(|&taken| taken > 0), "seed {seed}: {taken:?}");
            assert!(taken.iter().sum::<u64>() > 30, "seed {seed}: {taken:?}");
        }
    }
}

#[test]
fn threads_with_own_communicators_get_equal_results_either_way() {
    for site in sites() {
        assert_same_with_and_without(&site, 2, "--quiet --threads 2 --seed 5 --steps 20");
        assert_same_with_and_without(&site, 4, "--quiet --threads 2 --seed 6 --steps 10");
    }
}

#[test]
fn all_three_fortran_interfaces_are_intercepted() {
    for site in sites() {
        for program in site.fortran().into_iter().flatten() {
            let outcome = Job::spread(&site, 3).succeed(&program, "");
            let name = program.file_stem().unwrap().to_str().unwrap();
            outcome.line(&format!("{name}: ok"));
            let world = outcome.world();
            assert!(world.ranks == 3 && world.bcasts.taken > 0, "{name}: {world:?}");
            assert!(world.barriers.are_taken(), "{name}: {world:?}");
            // All except one of no numbers.
            let passed = world.allreduces.all - world.allreduces.taken;
            assert!(passed <= 1, "{name}: {world:?}");
            let parts = [world.reduce_scatters, world.scatters, world.alltoalls];
            let are_taken = parts.iter().all(|calls| calls.are_taken());
            assert!(are_taken || name == "module", "{name}: {world:?}");
        }
    }
}

#[test]
fn dlopened_mpi_works_with_and_without_intercepted_calls() {
    for site in sites() {
        let program = site.program("later");
        Job::plain(&site, 2).succeed(&program, "collectives").line("later: ok");
        Job::spread(&site, 2).succeed(&program, "nothing").line("later: ok");
        let outcome = Job::spread(&site, 2).succeed(&program, "collectives");
        outcome.line("later: ok");
        let world = outcome.world();
        assert!(world.bcasts.are_taken() && world.barriers.are_taken(), "{world:?}");
    }
}

#[test]
fn dlopened_fortran_uses_its_own_special_variables() {
    for site in sites().filter(|site| site.fortran().is_some()) {
        let program = site.program("later");
        Job::plain(&site, 2).succeed(&program, "fortran").line("later: ok");
        for value in ["on", "off"] {
            let job = Job::spread(&site, 2).with("OMNES_MPI", value);
            job.succeed(&program, "fortran").line("later: ok");
        }
    }
}

#[test]
fn calls_between_ranks_on_one_node_are_left_to_the_mpi() {
    for site in sites() {
        let world = few(&site, &Job::preloaded(&site, 2)).world();
        assert!(world.bcasts.are_passed() && world.barriers.are_passed(), "{world:?}");
        assert_eq!(world.reason, "all its ranks are on one node");
    }
}

#[test]
fn disabled_collectives_are_left_to_the_mpi() {
    for site in sites() {
        let world = |value| few(&site, &Job::spread(&site, 2).with("OMNES_MPI", value)).world();
        let off = world("off");
        assert!(off.bcasts.are_passed() && off.barriers.are_passed(), "{off:?}");
        assert!(off.allreduces.are_passed(), "{off:?}");
        assert_eq!(off.reason, "OMNES_MPI=off");
        let bcast = world("bcast");
        assert!(bcast.bcasts.are_taken() && bcast.barriers.are_passed(), "{bcast:?}");
        let barrier = world("barrier");
        assert!(barrier.bcasts.are_passed() && barrier.barriers.are_taken(), "{barrier:?}");
        assert!(barrier.allreduces.are_passed(), "{barrier:?}");
        let allreduce = world("allreduce");
        assert!(allreduce.allreduces.are_taken() && allreduce.bcasts.are_passed(), "{allreduce:?}");
        let on = world("on");
        assert!(on.bcasts.are_taken() && on.barriers.are_taken(), "{on:?}");
        assert!(on.allreduces.are_taken() && on.reduces.are_taken(), "{on:?}");
        // Gathers are not among the default operations.
        let all = "--ops bcast,reduce,allgather --check --iterations 5 --warmup 1 --sizes 8,4k";
        let job = |value| Job::spread(&site, 2).with("OMNES_MPI", value);
        let world = |value| job(value).succeed(&site.program("collbench"), all).world();
        let reduce = world("reduce");
        assert!(reduce.reduces.are_taken() && reduce.allgathers.are_passed(), "{reduce:?}");
        let blocks = "--ops reduce_scatter,bcast --check --iterations 5 --warmup 1 --sizes 8,4k";
        let world_of = |ops| job("reduce_scatter").succeed(&site.program("collbench"), ops).world();
        let scatter = world_of(blocks);
        assert!(scatter.reduce_scatters.are_taken() && scatter.bcasts.are_passed(), "{scatter:?}");
        let gather = world("allgather");
        assert!(gather.allgathers.are_taken() && gather.reduces.are_passed(), "{gather:?}");
    }
}

#[test]
fn ranks_that_cannot_connect_fall_back_to_the_mpi_with_a_reason() {
    for site in sites() {
        let job = Job::spread(&site, 2).with("OMNES_INTERFACE", "nonsense");
        let world = few(&site, &job).world();
        assert!(world.bcasts.are_passed() && world.barriers.are_passed(), "{world:?}");
        let reason = "OMNES_INTERFACE=nonsense: no address here fits";
        assert!(world.reason.contains(reason), "{world:?}");
    }
}

#[test]
fn library_for_another_mpi_intercepts_no_calls() {
    let sites: Vec<Site> = sites().collect();
    for site in &sites {
        for other in sites.iter().filter(|other| other.launcher.mpi != site.launcher.mpi) {
            // Under an unknown name, as another MPI's library name is rejected before anything
            // runs.
            let folder = tempfile::tempdir().unwrap();
            let soname = concat!("libomnes.so.", env!("CARGO_PKG_VERSION_MAJOR"));
            let path = folder.path().join("other.so");
            std::fs::copy(&other.library.path, &path).unwrap();
            let beside = other.library.path.with_file_name(soname);
            std::os::unix::fs::symlink(beside, folder.path().join(soname)).unwrap();
            let library = Library::named(site.launcher.mpi, &path).unwrap();
            library.check().unwrap();
            let job = Job::spread(site, 2).with_library(&library);
            let outcome = job.run(&site.program("collbench"), FEW);
            // Open MPI's pointers do not fit into MPICH's integers; the reverse does.
            let is_whole = site.launcher.mpi == Mpi::Mpich;
            assert_eq!(outcome.status.success(), is_whole, "{outcome:?}");
            if is_whole {
                assert!(outcome.report().is_empty(), "{outcome:?}")
            } else {
                assert!(outcome.errors.contains("the program has Open MPI"), "{outcome:?}")
            }
        }
    }
}

/// Files of Omnes in folders shared by all processes.
fn traces(folders: &[&Path]) -> BTreeSet<String> {
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten());
    let names = entries.map(|entry| entry.path().display().to_string());
    names.filter(|name| name.contains("omnes")).collect()
}

#[test]
fn dead_rank_ends_the_job_without_leftovers() {
    for site in sites() {
        for arguments in [
            "kill bcast",
            "kill barrier",
            "exit bcast",
            "exit barrier",
            "abort ibcast",
            "kill iallreduce",
        ] {
            // A program name and a folder for temporary files that only this job uses.
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("deadrank");
            std::fs::copy(site.program("deadrank"), &program).unwrap();
            let temporary = folder.path().join("t");
            std::fs::create_dir(&temporary).unwrap();
            let shared: [&Path; 2] = [Path::new("/dev/shm"), &temporary];
            let before = traces(&shared);

            let job = Job::spread(&site, 3).with("TMPDIR", &temporary).with("OMNES_STATS", "off");
            let outcome = job.run(&program, arguments);
            let what = format!("{}, {arguments}", site.launcher.mpi);
            assert!(!outcome.status.success(), "{what}: {outcome:?}");
            assert!(!outcome.output.contains("outlived it"), "{what}: {outcome:?}");
            assert_gone(&what, || processes_with(program.to_str().unwrap()));
            assert_gone(&what, || traces(&shared).difference(&before).cloned().collect());
        }
    }
}

/// Starts a program with a setting for rank 1 only.
const ONE_DIFFERS: &str = r#"
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || export OMNES_MPI=barrier
exec "$@"
"#;

#[test]
fn collectives_disabled_at_one_rank_are_left_to_the_mpi_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, ONE_DIFFERS).unwrap();
    for site in sites() {
        let program = site.program("collbench");
        let arguments = format!("{} {} {FEW}", script.display(), program.display());
        let world = Job::spread(&site, 3).succeed(Path::new("/bin/sh"), &arguments).world();
        assert!(world.bcasts.are_passed() && world.barriers.are_taken(), "{world:?}");
    }
}
