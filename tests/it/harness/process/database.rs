//! The file of a service's store, changed behind its back.

use std::path::Path;

pub(crate) async fn connect(path: &Path) -> sqlx::SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    sqlx::ConnectOptions::connect(&options).await.unwrap()
}

pub(crate) async fn change(path: &Path, statement: &'static str) {
    let mut connection = connect(path).await;
    sqlx::query(statement).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
}
