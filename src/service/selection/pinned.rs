//! Lists the pinned tools.

use crate::domain::catalog::catalog::Catalog;
use crate::settings::SelectionSettings;

/// Tools pinned in the settings, then those pinned by an admin, without duplicates.
pub(in crate::service) fn pinned<'a>(settings: &'a SelectionSettings, catalog: &'a Catalog) -> impl Iterator<Item = u32> + 'a {
    let of_settings = move || settings.pinned.iter().filter_map(|name| catalog.operation_position(name));
    let of_admin = catalog.pinned().iter().copied().filter(move |position| of_settings().all(|known| known != *position));
    of_settings().chain(of_admin)
}
