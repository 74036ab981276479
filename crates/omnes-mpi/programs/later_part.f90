! SPDX-License-Identifier: Apache-2.0 OR MIT
! The part that "later fortran" loads: MPI_IN_PLACE and MPI_BOTTOM are then
! variables of this library, unknown to the others when the program started.
integer(c_int) function later_run(what) bind(c, name='later_run')
  use iso_c_binding
  implicit none
  include 'mpif.h'
  character(kind=c_char), intent(in) :: what(*)
  integer rank, ranks, error, absolute
  integer, target, save :: values(4)
  integer(kind=MPI_ADDRESS_KIND) address(1)
  logical is_right
  call MPI_INIT(error)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
  values = (/ 1, 2, 3, 4 /) + rank
  call MPI_ALLREDUCE(MPI_IN_PLACE, values, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  is_right = all(values == (/ 1, 2, 3, 4 /) * ranks + ranks * (ranks - 1) / 2)
  ! A call that is passed to the MPI.
  values = rank + 1
  call MPI_ALLREDUCE(MPI_IN_PLACE, values, 2, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, error)
  is_right = is_right .and. all(values == ranks)
  values = merge(7, -1, rank == 0)
  call MPI_GET_ADDRESS(values, address(1), error)
  call MPI_TYPE_CREATE_HINDEXED(1, 4, address, MPI_INTEGER, absolute, error)
  call MPI_TYPE_COMMIT(absolute, error)
  call MPI_BCAST(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD, error)
  is_right = is_right .and. all(values == 7)
  call MPI_TYPE_FREE(absolute, error)
  call MPI_FINALIZE(error)
  if (is_right .and. rank == 0 .and. what(1) == 'f') print '(a)', 'later: ok'
  later_run = merge(0_c_int, 1_c_int, is_right)
end function
