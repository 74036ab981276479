//! Values with units, as typed on the command line and as shown in tables.
