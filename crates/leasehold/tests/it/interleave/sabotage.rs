//! Broken functions, each in the test's own database. A judge that never said no proves nothing.
