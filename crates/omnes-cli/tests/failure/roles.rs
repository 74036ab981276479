//! Roles of the ranks of a job: all except the victim wait in their role, and the victim meets its
//! fate meanwhile.

use crate::{PATIENCE, SUSPENSION};
use omnes::{Communicator, Error, NicState, Source, Tag};
use std::time::{Duration, Instant};

/// Not a test of its own: the body of a rank. The role is how all ranks except the victim wait; the
/// fate is what happens to the victim meanwhile.
#[test]
fn plays_a_role() {
    let Ok(role) = std::env::var("TEST_ROLE") else { return };
    let victim: u32 = std::env::var("TEST_VICTIM").unwrap().parse().unwrap();
    let fate = std::env::var("TEST_FATE").unwrap();
    let played = Communicator::from_env().and_then(|world| {
        let pair = world.split(Some(world.rank() / 2), 0)?.unwrap();
        world.barrier()?;
        println!("ready");
        match role.as_str() {
            "farewell" => return say_farewell(world, victim),
            "long" => return send_long(world, victim, fate == "for ever"),
            "cast" => return cast_long(&world),
            "rounds" => return work(&world),
            "steady" => return meet_steadily(&world),
            _ => {}
        }
        match (world.rank() == victim, fate.as_str()) {
            (true, "exit") => {
                // A failed rank's last messages may be lost: all ranks must have left the barrier.
                (1..world.size())
                    .try_for_each(|_| world.recv(Source::Any, 9, &mut []).map(drop))?;
                std::process::exit(0)
            }
            (false, "exit") => {
                world.send(victim, 9, &[])?;
                wait_in(&role, &world, victim)?;
            }
            (true, "compute") => std::thread::sleep(PATIENCE),
            (false, _) if role == "chain" => pass_on(&world, &pair, victim)?,
            (false, "stay") => {} // Its communicators go out of scope.
            (true, "wait") => wait_in("recv", &world, victim)?,
            _ => wait_in(&role, &world, victim)?,
        }
        Ok(())
    });
    match played {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("ended: {error}");
            std::process::exit(3);
        }
    }
}

/// Waits forever, because the victim does not take part, or nobody sends.
fn wait_in(role: &str, world: &Communicator, victim: u32) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let mut byte = [0];
    match role {
        "neighbour" => {
            // Nobody sends; each rank that can waits for a healthy one.
            let next = (1..size).map(|step| (me + step) % size).find(|rank| *rank != victim);
            world.recv(next.unwrap(), 1, &mut byte).map(drop)
        }
        "recv" if me == victim => world.recv((me + 1) % size, 1, &mut byte).map(drop),
        "recv" => world.recv(victim, 1, &mut byte).map(drop),
        "any" => world.recv(Source::Any, Tag::Any, &mut byte).map(drop),
        "send" => world.send(victim, 1, &vec![0; 1 << 20]),
        "bcast" => world.bcast(victim, &mut vec![0; 3 << 20]),
        "barrier" => world.barrier(),
        other => panic!("no role '{other}'"),
    }
}

/// Rank 1 is to forward a broadcast of rank 0, which never arrives, to the victim, rank 2. Its
/// communication with rank 0 alone, meanwhile and later, is independent of that.
fn pass_on(world: &Communicator, pair: &Communicator, victim: u32) -> Result<(), Error> {
    let mut data = vec![0; 1 << 20];
    if world.rank() != 1 {
        let failed = world.recv(victim, 1, &mut data).map(drop);
        if world.rank() == 0 {
            pair.send(1, 5, b"meanwhile")?;
            pair.send(1, 6, b"later")?;
        }
        return failed;
    }
    let (mut meanwhile, mut later) = ([0; 9], [0; 5]);
    let failed = pair.scope(|scope| {
        let received = scope.irecv(Source::Any, 5, &mut meanwhile)?;
        let failed = world.bcast_with(0, &mut data, "chain".parse().unwrap());
        received.wait()?;
        Ok::<_, Error>(failed)
    })?;
    pair.recv(0, 6, &mut later)?;
    assert_eq!((&meanwhile, &later), (b"meanwhile", b"later"));
    failed
}

/// The victim leaves in order, early. Its messages have arrived, and the others continue.
fn say_farewell(world: Communicator, victim: u32) -> Result<(), Error> {
    let others = world.split((world.rank() != victim).then_some(0), 0)?;
    let Some(others) = others else {
        for rank in (0..world.size()).filter(|rank| *rank != victim) {
            world.send(rank, 1, b"last words")?;
        }
        return Ok(()); // Its only communicator goes out of scope.
    };
    let mut text = [0; 10];
    // There is no second message: the end of the wait shows that the farewell has arrived.
    match world.recv(victim, 2, &mut text) {
        Err(Error::PeerLeft { rank }) => assert_eq!(rank, victim),
        other => panic!("{other:?}"),
    }
    world.recv(victim, 1, &mut text)?;
    assert_eq!(&text, b"last words");
    for root in 0..others.size() {
        others.barrier()?;
        others.bcast(root, &mut vec![0; 100_000])?;
    }
    match world.send(victim, 1, b"nobody") {
        Err(Error::PeerLeft { rank }) => assert_eq!(rank, victim),
        other => panic!("{other:?}"),
    }
    others.barrier()
}

/// Rank 0 sends the victim messages of long packets and a short one, repeatedly or a few; the
/// others wait for a message from the victim, and then for data to all ranks.
fn send_long(world: Communicator, victim: u32, is_endless: bool) -> Result<(), Error> {
    let mut data = vec![0; 50_000];
    let (me, count) = (world.rank(), if is_endless { usize::MAX } else { 3 });
    if me == 0 {
        (0..count).try_for_each(|_| world.send(victim, 1, &data))?;
    } else if me == victim {
        (0..count).try_for_each(|_| world.recv(0, 1, &mut data).map(drop))?;
    }
    if me == victim {
        (0..world.size()).filter(|to| *to != me).try_for_each(|to| world.send(to, 2, &[]))?;
    } else {
        world.recv(victim, 2, &mut [])?;
    }
    world.bcast(0, &mut data)?;
    world.finalize()
}

/// Rank 0 sends all others messages of long packets and a short one, by multicast, repeatedly.
fn cast_long(world: &Communicator) -> Result<(), Error> {
    let mut data = vec![0; 45_000];
    loop {
        world.bcast_with(0, &mut data, "combined".parse().unwrap())?;
    }
}

/// Barriers by the kernel NIC, for a while, with pauses.
fn meet_steadily(world: &Communicator) -> Result<(), Error> {
    // The same on all ranks.
    (0..500).try_for_each(|_| world.barrier())?;
    while world.nic() == NicState::Opening {
        world.barrier()?;
    }
    assert_eq!(world.nic(), NicState::Kernel);
    println!("steady");
    for _ in 0..200 {
        world.barrier()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// All ranks work together, in each way, until rank 0 has seen enough time pass.
fn work(world: &Communicator) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let start = Instant::now();
    let mut is_over = [0];
    while is_over == [0] {
        let (to, from) = ((me + 1) % size, (me + size - 1) % size);
        let mut got = vec![0; 300_000];
        world.scope(|scope| {
            let received = scope.irecv(from, 1, &mut got)?;
            world.send(to, 1, &vec![me as u8; 300_000])?;
            received.wait()
        })?;
        assert!(got.iter().all(|byte| *byte == from as u8));
        world.barrier()?;
        is_over = [u8::from(start.elapsed() > 2 * SUSPENSION)];
        world.bcast(0, &mut is_over)?;
    }
    Ok(())
}
