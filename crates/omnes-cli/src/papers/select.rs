//! Selection of targets.

use anyhow::{Result, bail};
use omnes_papers::{Paper, Target, targets};

/// The targets that `words` name, in the order of the papers; all if there are no words.
///
/// # Errors
/// Names a word that is neither a target nor a paper.
pub fn targets_of(words: &[String]) -> Result<Vec<&'static Target>> {
    for word in words {
        if paper(word).is_none() && !targets().iter().any(|target| is_id(word, target)) {
            let papers = Paper::ALL.map(|paper| format!("{} ({})", paper.name(), paper.marker()));
            bail!(
                "`{word}` is neither a target nor a paper; papers are {}, targets look like MS-F04",
                papers.join(", ")
            );
        }
    }
    let is_meant = |target: &&Target| {
        let names = |word: &String| paper(word) == Some(target.paper()) || is_id(word, target);
        words.is_empty() || words.iter().any(names)
    };
    Ok(targets().iter().filter(is_meant).collect())
}

/// True if individual targets are named, for which details are shown.
pub fn names_targets(words: &[String]) -> bool {
    !words.is_empty() && words.iter().all(|word| paper(word).is_none())
}

fn paper(word: &str) -> Option<Paper> {
    let is_it =
        |paper: &Paper| [paper.name(), paper.marker()].map(|it| is_same(it, word)).contains(&true);
    Paper::ALL.into_iter().find(is_it)
}

fn is_id(word: &str, target: &Target) -> bool {
    is_same(&target.id, word)
}

fn is_same(name: &str, word: &str) -> bool {
    name.eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ids(words: &[&str]) -> Vec<&'static str> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        targets_of(&words).unwrap().iter().map(|target| target.id.as_str()).collect()
    }

    #[test]
    fn targets_are_selected_by_id_or_paper_case_insensitively() {
        assert_eq!(ids(&["cb-f01", "MS-F04"]), ["MS-F04", "CB-F01"]);
        assert_eq!(ids(&[]).len(), 167);
        assert!(ids(&["IT"]).iter().all(|id| id.starts_with("IT-")));
        assert_eq!(ids(&["itb"]), ids(&["it", "IT-F01"]));
    }

    #[test]
    fn unknown_target_error_lists_the_papers() {
        let error = targets_of(&["MS-F99".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("MS-F99") && error.contains("multisend (MS)"), "{error}");
    }
}
