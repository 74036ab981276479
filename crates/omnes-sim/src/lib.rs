//! Many ranks in one process and in virtual time, with faults and checkers.
