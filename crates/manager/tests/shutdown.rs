//! A manager that is told to stop lets transactions end.

mod support;

use std::time::Duration;
use support::*;

#[test]
fn a_transaction_can_end() {
    let db = database("draining");
    for workers in [1, 2] {
        let manager = manager(server(), workers, 2);
        let mut busy = Client::new(&manager, db);
        let mut idle = Client::new(&manager, db);
        busy.query("drop table if exists s; create table s (id int)");
        assert_eq!(busy.query("begin").status, b'T');
        assert_eq!(idle.query("select 1").value(), "1");
        let address = manager.addresses()[0].clone();
        let ending = std::thread::spawn(move || manager.shut_down(|| false));
        // Those outside a transaction are told so and closed.
        let reply = idle.reply();
        assert_eq!((reply.state(), reply.status), ("57P01", 0), "{reply:?}");
        std::thread::sleep(Duration::from_millis(300));
        assert!(!ending.is_finished());
        assert_eq!(busy.query("insert into s values (1) returning id").value(), "1");
        assert_eq!(busy.query("commit").done, ["COMMIT"]);
        assert_eq!(busy.reply().status, 0);
        assert!(ending.join().unwrap());
        assert!(std::net::TcpStream::connect(&address).is_err());
        assert_eq!(server().psql(db, "select count(*) from s").unwrap(), "1");
        eventually(Duration::from_secs(5), "no backend is left", || backends(db, "true") == 0);
    }
}

/// In a hurry nobody waits.
#[test]
fn a_hurry_ends_it_at_once() {
    let db = database("hurrying");
    let manager = manager(server(), 2, 2);
    let mut busy = Client::new(&manager, db);
    busy.query("begin");
    assert!(!manager.shut_down(|| true));
    assert_eq!(busy.reply().status, 0);
    eventually(Duration::from_secs(5), "no backend is left", || backends(db, "true") == 0);
}
