//! Objects of an agent in the kernel.

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use serde_json::Value;
/// Numbers of the kernel objects of the agent in `list`: programs, links, maps.
pub(crate) struct Traces {
    pub(crate) programs: Vec<u32>,
    links: Vec<u32>,
    maps: Vec<u32>,
}

impl Traces {
    pub(crate) fn of(list: &Value) -> Self {
        let programs = list["interfaces"][0]["programs"].as_array().unwrap();
        let numbers = |name: &str| -> Vec<u32> {
            programs.iter().map(|it| it[name].as_u64().unwrap() as u32).collect()
        };
        let (programs, links) = (numbers("program_id"), numbers("link_id"));
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let infos = ProgInfoIter::with_query_opts(options).filter(|it| programs.contains(&it.id));
        let maps: Vec<u32> = infos.flat_map(|info| info.map_ids).collect();
        assert!(programs.len() == 2 && links.len() == 2 && maps.len() >= 6, "{maps:?}");
        Self { programs, links, maps }
    }

    pub(crate) fn are_gone(&self) -> bool {
        !ProgInfoIter::default().any(|it| self.programs.contains(&it.id))
            && !LinkInfoIter::default().any(|it| self.links.contains(&it.id))
            && !MapInfoIter::default().any(|it| self.maps.contains(&it.id))
    }
}
