//! Shell completions and `man` pages of the command.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn omnes(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_omnes")).args(arguments).output().unwrap()
}

#[test]
fn completions_exist_for_every_shell_and_bash_accepts_its_own() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let Output { status, stdout, .. } = omnes(&["completions", shell]);
        let script = String::from_utf8(stdout).unwrap();
        assert!(status.success() && script.contains("doctor"), "{shell}: {script}");
        assert!(!script.contains("warden"), "{shell} offers what is not for people");
    }
    let script = "source <(\"$0\" completions bash) && COMP_WORDS=(omnes doc) COMP_CWORD=1 && \
                  _omnes omnes doc omnes && echo \"${COMPREPLY[@]}\"";
    let completed =
        Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_omnes")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout), "doctor\n", "{completed:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("man/man1");
    let written = omnes(&["manual", folder.to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    for (name, words) in [
        ("omnes", "Collective communication"),
        ("omnes-bench", "omnes run \\-n 8 \\-\\- omnes bench bcast,barrier"),
        ("omnes-lab-up", "loss"),
    ] {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".TH") && page.contains(words), "{name}: {page}");
    }
    assert!(!folder.join("omnes-warden.1").exists());
}

#[test]
fn folder_that_cannot_be_created_is_named() {
    let refused = omnes(&["manual", "/dev/null/man1"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors.contains("cannot write pages to /dev/null/man1: "), "{errors}");
}
