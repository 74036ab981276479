//! Hosts reached by ssh, from a list or a file.
//!
//! ```text
//! list:   ITEM,ITEM,...          file:   ITEM or HOST slots=N on a line, # comments
//! ITEM:   HOST[:SLOTS]           HOST:   [user@]name, name[1-4,7], name[01-16], [fd00::1]
//! ```
//!
//! Numbers in brackets stand for one host each, as in Slurm: with as many digits as the first
//! number of a range. A host that is listed twice gets the slots of both.

use super::placement::RANKS_MAX;
use anyhow::{Context, Result, bail, ensure};
use std::net::Ipv6Addr;
use std::path::Path;

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHost {
    /// Name as given to ssh, possibly `user@host`.
    pub name: String,
    /// Number of ranks that it takes, at least 1.
    pub slots: usize,
}

/// Parses a list such as `a,b:2,user@[fd00::1]:4,node[1-4,7]`.
///
/// Errors name the item and the expected form.
pub fn parse(list: &str) -> Result<Vec<SshHost>> {
    let mut hosts = Vec::new();
    for item in items(list) {
        add(&mut hosts, item, None).with_context(|| format!("--hosts {list}"))?;
    }
    Ok(hosts)
}

/// Reads a file with an item or `HOST slots=N` on each line.
///
/// Errors name the line and the expected form; a file without hosts is an error.
pub fn read(path: &Path) -> Result<Vec<SshHost>> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read --hostfile {shown}"))?;
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> =
            line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let added = match *words {
            [] => continue,
            [item] => items(item).into_iter().try_for_each(|item| add(&mut hosts, item, None)),
            [host, slots] => match slots.strip_prefix("slots=") {
                Some(slots) => {
                    items(host).into_iter().try_for_each(|host| add(&mut hosts, host, Some(slots)))
                }
                None => Err(anyhow::anyhow!("'{slots}': want slots=N")),
            },
            _ => Err(anyhow::anyhow!("expected HOST, HOST:SLOTS or HOST slots=N")),
        };
        added.with_context(|| format!("--hostfile {shown}, line {}", index + 1))?;
    }
    ensure!(!hosts.is_empty(), "--hostfile {shown} names no host");
    Ok(hosts)
}

/// The machine in `user@machine`.
pub fn machine(host: &str) -> &str {
    host.rsplit_once('@').map_or(host, |(_, machine)| machine)
}

/// Splits a list at commas outside of brackets.
fn items(list: &str) -> Vec<&str> {
    let mut is_inside = false;
    let at_comma = |c: char| {
        is_inside = (is_inside || c == '[') && c != ']';
        c == ',' && !is_inside
    };
    list.split(at_comma).collect()
}

/// Adds the hosts of one item; `slots` is given if it is a separate word.
fn add(hosts: &mut Vec<SshHost>, item: &str, slots: Option<&str>) -> Result<()> {
    for one in expand(item)? {
        let mut host = parse_one(&one)?;
        if let Some(slots) = slots {
            host.slots = parse_slots(item, slots)?;
        }
        let is_same = |known: &&SshHost| machine(&known.name) == machine(&host.name);
        if let Some(other) = hosts.iter().find(is_same).filter(|known| known.name != host.name) {
            // Its local ranks would be counted from 0 twice.
            bail!("'{}' and '{}' are one machine: name it as one of them", other.name, host.name);
        }
        match hosts.iter_mut().find(|known| known.name == host.name) {
            Some(known) => known.slots += host.slots,
            None => hosts.push(host),
        }
    }
    Ok(())
}

/// The item repeated for each number in its brackets; brackets of IPv6 addresses are kept.
fn expand(item: &str) -> Result<Vec<String>> {
    let Some((before, rest)) = item.split_once('[') else { return Ok(vec![item.to_owned()]) };
    let is_start = before.is_empty() || before.ends_with('@');
    let Some((inside, after)) = rest.split_once(']') else {
        bail!("'{item}': expected ']' after '['");
    };
    // An address may have a zone, as in fe80::1%eth0.
    if is_start && inside.split('%').next().is_some_and(|it| it.parse::<Ipv6Addr>().is_ok()) {
        return Ok(vec![item.to_owned()]);
    }
    let numbers = numbers(inside).with_context(|| {
        format!("'{item}': brackets hold an IPv6 address, or up to {RANKS_MAX} numbers: a[1-4,7]")
    })?;
    let rests = expand(after)?;
    ensure!(
        numbers.len().saturating_mul(rests.len()) <= RANKS_MAX,
        "'{item}': more than {RANKS_MAX} hosts"
    );
    let whole = |number: &String| -> Vec<String> {
        rests.iter().map(|rest| format!("{before}{number}{rest}")).collect()
    };
    Ok(numbers.iter().flat_map(whole).collect())
}

/// `1-3,7` gives 1, 2, 3 and 7; `08-10` gives 08, 09 and 10.
fn numbers(ranges: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (width, first, last) =
            (first.len(), first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if first > last || last - first >= (RANKS_MAX - numbers.len()) as u64 {
            return None;
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

fn parse_one(item: &str) -> Result<SshHost> {
    let address = item.rsplit_once('@').map_or(item, |(_, host)| host);
    if address.parse::<Ipv6Addr>().is_ok() {
        bail!("'{item}': write an IPv6 address in brackets: [{address}]");
    }
    // `user@` of a name without brackets is kept in the name.
    let (user, host) = item.split_at(item.find("@[").map_or(0, |at| at + 1));
    let (host, slots) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (
            host,
            Some(
                rest.strip_prefix(':')
                    .with_context(|| format!("'{item}': expected ':' after ']'"))?,
            ),
        ),
        None => match host.split_once(':') {
            Some((host, slots)) => (host, Some(slots)),
            None => (host, None),
        },
    };
    let name = format!("{user}{host}");
    // A leading dash would reach ssh as an option, such as one that runs a local command.
    if host.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
        bail!("'{item}' names no host; give HOST or HOST:SLOTS");
    }
    let slots = slots.map_or(Ok(1), |text| parse_slots(item, text))?;
    Ok(SshHost { name, slots })
}

fn parse_slots(item: &str, text: &str) -> Result<usize> {
    let slots = text.parse().ok().filter(|slots| (1..=RANKS_MAX).contains(slots));
    slots.with_context(|| format!("'{item}': slots must be a number from 1 to {RANKS_MAX}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shown(hosts: Vec<SshHost>) -> Vec<String> {
        hosts.into_iter().map(|SshHost { name, slots }| format!("{name} {slots}")).collect()
    }

    #[test]
    fn bracketed_numbers_expand_to_hosts() {
        for (list, expected) in [
            ("node[1-3,7]", &["node1 1", "node2 1", "node3 1", "node7 1"][..]),
            ("me@n[08-10]:2,b", &["me@n08 2", "me@n09 2", "me@n10 2", "b 1"]),
            ("r[1-2]n[0,1]", &["r1n0 1", "r1n1 1", "r2n0 1", "r2n1 1"]),
            ("a[1],a[1-2]:4", &["a1 5", "a2 4"]),
            ("[fe80::1%eth0]:3,[::1]", &["fe80::1%eth0 3", "::1 1"]),
        ] {
            assert_eq!(shown(parse(list).unwrap()), expected, "{list}");
        }
    }

    #[test]
    fn invalid_host_lists_are_rejected_with_a_hint() {
        for (list, words) in [
            ("-oProxyCommand=x", "names no host"),
            ("a,,b", "names no host"),
            ("a:2,me@a", "'a' and 'me@a' are one machine"),
            ("", "names no host"),
            ("a b", "names no host"),
            ("a:0", "slots must be"),
            ("a:x", "slots must be"),
            ("a:99999", "slots must be"),
            ("[::1]2", "expected ':' after ']'"),
            ("::1", "write an IPv6 address in brackets: [::1]"),
            ("root@fd00::1:4", "write an IPv6 address in brackets: [fd00::1:4]"),
            ("a@[]", "brackets hold an IPv6 address"),
            ("[a]:2", "brackets hold an IPv6 address"),
            ("node[4-1]", "brackets hold"),
            ("node[1-]", "brackets hold"),
            ("node[a-b]", "brackets hold"),
            ("node[1-4097]", "up to 4096 numbers"),
            ("a[1-100]b[1-100]", "more than 4096 hosts"),
            ("node[1-4", "expected ']' after '['"),
        ] {
            let error = format!("{:#}", parse(list).unwrap_err());
            assert!(error.contains(words), "{list}: {error}");
        }
    }

    #[test]
    fn hostfile_lists_one_host_entry_per_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path)
        };
        let hosts = read("# ours\na\n\nb:2 # two\n  c slots=3\nn[1-2] slots=4\n").unwrap();
        assert_eq!(shown(hosts), ["a 1", "b 2", "c 3", "n1 4", "n2 4"]);
        for (text, words) in [
            ("# none\n", "names no host"),
            ("a\nb 4\n", "line 2: '4': want slots=N"),
            ("a slots=0\n", "line 1: 'a': slots must be"),
            ("a slots=1 max_slots=2\n", "expected HOST, HOST:SLOTS or HOST slots=N"),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
