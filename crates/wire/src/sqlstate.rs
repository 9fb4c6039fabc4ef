//! The SQLSTATEs that pgusher itself sends or looks for (PostgreSQL, src/backend/utils/errcodes.txt).

/// `08P01` protocol_violation.
pub const PROTOCOL_VIOLATION: &str = "08P01";
/// `08000` connection_exception.
pub const CONNECTION_EXCEPTION: &str = "08000";
/// `08001` sqlclient_unable_to_establish_sqlconnection.
pub const UNABLE_TO_CONNECT: &str = "08001";
/// `08004` sqlserver_rejected_establishment_of_sqlconnection.
pub const REJECTED_CONNECTION: &str = "08004";
/// `08006` connection_failure.
pub const CONNECTION_FAILURE: &str = "08006";
/// `0A000` feature_not_supported.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
/// `22023` invalid_parameter_value.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// `25P02` in_failed_sql_transaction.
pub const IN_FAILED_TRANSACTION: &str = "25P02";
/// `25P03` idle_in_transaction_session_timeout.
pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
/// `26000` invalid_sql_statement_name.
pub const INVALID_STATEMENT_NAME: &str = "26000";
/// `28000` invalid_authorization_specification.
pub const INVALID_AUTHORIZATION: &str = "28000";
/// `28P01` invalid_password.
pub const INVALID_PASSWORD: &str = "28P01";
/// `3D000` invalid_catalog_name.
pub const INVALID_CATALOG_NAME: &str = "3D000";
/// `53200` out_of_memory.
pub const OUT_OF_MEMORY: &str = "53200";
/// `53300` too_many_connections.
pub const TOO_MANY_CONNECTIONS: &str = "53300";
/// `54000` program_limit_exceeded.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// `55000` object_not_in_prerequisite_state.
pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
/// `57014` query_canceled.
pub const QUERY_CANCELED: &str = "57014";
/// `57P01` admin_shutdown.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// `57P03` cannot_connect_now.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// `57P05` idle_session_timeout.
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
/// `XX000` internal_error.
pub const INTERNAL_ERROR: &str = "XX000";
