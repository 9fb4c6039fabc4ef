//! The door to a real server: one connection of `pgusher-client` per visit.

use std::collections::HashMap;

use pgusher_client::{Connection, Connector, Reply, TxStatus};

use super::load::{Door, Visit};
use super::model::Protocol;
use crate::failure::{Failure, Step};
use crate::script::{EvaluationError, Script, Statement, Variables};

/// How to reach one side.
pub(crate) struct ServerDoor {
    pub(crate) connector: Connector,
    pub(crate) protocol: Protocol,
    pub(crate) wait_for_exit: bool,
}

/// A connection to it.
pub(crate) struct ServerVisit {
    connection: Connection,
    protocol: Protocol,
    wait_for_exit: bool,
    /// Names of the statements that this connection has prepared, by their text.
    prepared: HashMap<String, String>,
}

impl Door for ServerDoor {
    type Visit = ServerVisit;

    fn connect(&self) -> Result<ServerVisit, Failure> {
        let (connection, _) = self.connector.connect().map_err(|e| Failure::of(Step::Connect, &e))?;
        Ok(ServerVisit {
            connection,
            protocol: self.protocol,
            wait_for_exit: self.wait_for_exit,
            prepared: HashMap::new(),
        })
    }
}

impl Visit for ServerVisit {
    fn transaction(&mut self, script: &Script, variables: &mut Variables) -> Result<(), Failure> {
        script.run(variables, |statement, values| self.statement(statement, values))
    }

    fn usable(&mut self) -> bool {
        if !self.connection.is_usable() {
            return false;
        }
        match self.connection.transaction_status() {
            TxStatus::Idle => true,
            // A script that failed inside its transaction block must not spoil the next one.
            _ => self.connection.simple_query("ROLLBACK").is_ok_and(|reply| reply.error.is_none()),
        }
    }

    fn close(self) -> Result<(), Failure> {
        if self.wait_for_exit && self.connection.is_usable() {
            return self.connection.terminate().map(drop).map_err(|e| Failure::of(Step::Disconnect, &e));
        }
        // Sends Terminate and closes the socket.
        drop(self.connection);
        Ok(())
    }
}

impl ServerVisit {
    fn statement(&mut self, statement: &Statement, values: &Variables) -> Result<(), Failure> {
        let reply = match self.protocol {
            Protocol::Simple => self.connection.simple_query(&statement.with_values(values)),
            Protocol::Extended | Protocol::Prepared => {
                let parameters = statement.parameters(values);
                let parameters: Vec<Option<&str>> = parameters.iter().map(|p| Some(p.as_str())).collect();
                if self.protocol == Protocol::Prepared {
                    self.execute(statement.with_parameters(), &parameters)
                } else {
                    self.connection.pipelined(statement.with_parameters(), &parameters)
                }
            }
        };
        reply.and_then(Reply::into_result).map(drop).map_err(|e| Failure::of(Step::Transaction, &e))
    }

    /// Prepares the statement if this connection has not done so yet, and executes it.
    fn execute(&mut self, sql: &str, parameters: &[Option<&str>]) -> pgusher_client::Result<Reply> {
        if let Some(name) = self.prepared.get(sql) {
            return self.connection.bind_execute_sync(name, parameters);
        }
        let name = format!("P_{}", self.prepared.len() + 1);
        self.connection.parse_describe_sync(&name, sql).and_then(Reply::into_result)?;
        self.prepared.insert(sql.to_owned(), name.clone());
        self.connection.bind_execute_sync(&name, parameters)
    }
}

impl From<EvaluationError> for Failure {
    fn from(error: EvaluationError) -> Self {
        Self { step: Step::Transaction, cause: "script".to_owned(), message: error.to_string() }
    }
}
