//! What was seen, before anything is concluded from it. Made by the `look` of each group, read by its `judge`; a test
//! can make one up for any server version.

use super::catalogs::Catalog;
use super::huge_pages::HugePages;
use super::init_files::InitFiles;
use super::jit::CompiledStatement;
use super::limits::Limits;
use super::passwords::Passwords;
use super::place::Place;
use super::probes::Probes;
use super::rate::Rate;
use super::sessions::Session;
use super::settings::Settings;
use super::start_up::StartUp;
use super::statements::Statements;

/// Everything that was seen. `None` is what was not examined.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) place: Place,
    pub(super) settings: Settings,
    pub(super) sessions: Option<Vec<Session>>,
    pub(super) rate: Option<Rate>,
    pub(super) limits: Option<Limits>,
    pub(super) huge_pages: HugePages,
    pub(super) init_files: Option<InitFiles>,
    pub(super) catalogs: Option<Vec<Catalog>>,
    pub(super) passwords: Passwords,
    pub(super) compiled: Option<Vec<CompiledStatement>>,
    pub(super) start_up: StartUp,
    pub(super) statements: Statements,
    pub(super) probes: Probes,
}
