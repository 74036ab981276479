! SPDX-License-Identifier: Apache-2.0 OR MIT
! Broadcasts and barriers from Fortran with "use mpi": MPI_BOTTOM, a derived
! type, waiting and testing. Prints ok, or what is wrong.
program module_of_mpi
  use mpi
  implicit none
  type :: particle
    sequence
    double precision :: place(3)
    integer :: charge, mark
  end type
  integer, parameter :: particles = 50
  type(particle) :: cloud(particles)
  integer :: rank, ranks, error, request, requests(2), i, root, kinds(2), lengths(2), struct, bottom
  integer :: values(1000)
  integer(kind=MPI_ADDRESS_KIND) :: places(2), start
  logical :: is_done

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  root = ranks - 1

  ! The struct without its mark, which must not change.
  call MPI_Get_address(cloud(1), start, error)
  call MPI_Get_address(cloud(1)%place, places(1), error)
  call MPI_Get_address(cloud(1)%charge, places(2), error)
  places = places - start
  lengths = [3, 1]
  kinds = [MPI_DOUBLE_PRECISION, MPI_INTEGER]
  call MPI_Type_create_struct(2, lengths, places, kinds, bottom, error)
  call MPI_Type_create_resized(bottom, 0_MPI_ADDRESS_KIND, &
    int(storage_size(cloud) / 8, MPI_ADDRESS_KIND), struct, error)
  call MPI_Type_commit(struct, error)
  do i = 1, particles
    cloud(i) = particle([0d0, 0d0, 0d0], 0, rank)
    if (rank == root) cloud(i) = particle([1d0, 2d0, 3d0] * i, i, rank)
  end do
  call MPI_Bcast(cloud, particles, struct, root, MPI_COMM_WORLD, error)
  call expect(error == MPI_SUCCESS, "the error of MPI_Bcast")
  do i = 1, particles
    call expect(all(cloud(i)%place == [1d0, 2d0, 3d0] * i), "numbers of a struct")
    call expect(cloud(i)%charge == i .and. cloud(i)%mark == rank, "the rest of a struct")
  end do
  call MPI_Type_free(bottom, error)

  ! The same at an absolute address.
  call MPI_Type_create_hindexed(1, [particles], [start], struct, bottom, error)
  call MPI_Type_commit(bottom, error)
  if (rank == 0) cloud(particles)%charge = 77
  call MPI_Ibcast(MPI_BOTTOM, 1, bottom, 0, MPI_COMM_WORLD, request, error)
  call MPI_Wait(request, MPI_STATUS_IGNORE, error)
  call expect(cloud(particles)%charge == 77, "MPI_Ibcast at MPI_BOTTOM")
  call MPI_Type_free(bottom, error)
  call MPI_Type_free(struct, error)

  values = -1
  if (rank == 0) values = [(i, i = 1, size(values))]
  call MPI_Ibcast(values, size(values), MPI_INTEGER, 0, MPI_COMM_WORLD, requests(1), error)
  call MPI_Ibarrier(MPI_COMM_WORLD, requests(2), error)
  is_done = .false.
  do while (.not. is_done)
    call MPI_Testall(2, requests, is_done, MPI_STATUSES_IGNORE, error)
  end do
  call expect(all(values == [(i, i = 1, size(values))]), "MPI_Ibcast")
  call expect(all(requests == MPI_REQUEST_NULL), "null requests")
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call expect(error == MPI_SUCCESS, "the error of MPI_Barrier")
  if (rank == 0) print "(a)", "module: ok"
  call MPI_Finalize(error)

contains

  subroutine expect(is_right, what)
    logical, intent(in) :: is_right
    character(*), intent(in) :: what
    integer :: ignored

    if (is_right) return
    print "(2a)", "module: wrong: ", what
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine
end program
