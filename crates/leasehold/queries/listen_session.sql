-- The session that listens. It is idle for hours and holds the lock that announces that its worker
-- sleeps: when the worker's machine vanishes, the server must notice within a minute.
set idle_session_timeout = 0;
set tcp_keepalives_idle = 30;
set tcp_keepalives_interval = 10;
set tcp_keepalives_count = 3;
set tcp_user_timeout = '30s';
