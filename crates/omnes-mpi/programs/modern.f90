! SPDX-License-Identifier: Apache-2.0 OR MIT
! Broadcasts, barriers, reductions and gathers from Fortran with "use mpi_f08":
! with and without the error argument, MPI_BOTTOM, MPI_IN_PLACE, a derived
! type, several ways to wait. Prints ok, or what is wrong.
program modern
  use mpi_f08
  implicit none
  integer, parameter :: length = 300
  type(MPI_Comm) :: half
  type(MPI_Datatype) :: columns, absolute
  type(MPI_Request) :: request, requests(3)
  type(MPI_Status) :: status
  logical :: is_done
  integer, asynchronous :: values(length), matrix(6, 4)
  integer :: rank, ranks, half_rank, half_size, root, i, index, error
  integer(kind=MPI_ADDRESS_KIND) :: address

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)

  do root = 0, ranks - 1
    values = merge(root, -1, rank == root)
    call MPI_Bcast(values, length, MPI_INTEGER, root, MPI_COMM_WORLD)
    call expect(all(values == root), "MPI_Bcast")
  end do

  ! On some of the ranks, with the error argument.
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half)
  call MPI_Comm_rank(half, half_rank)
  call MPI_Comm_size(half, half_size)
  values(1) = merge(9, -1, half_rank == half_size - 1)
  call MPI_Bcast(values, 1, MPI_INTEGER, half_size - 1, half, error)
  call expect(error == MPI_SUCCESS .and. values(1) == 9, "MPI_Bcast of a part")
  call MPI_Barrier(half, error)
  call MPI_Comm_free(half)
  call expect(half == MPI_COMM_NULL, "MPI_Comm_free")

  ! Columns 1 and 3 of a matrix.
  call MPI_Type_vector(2, 6, 12, MPI_INTEGER, columns)
  call MPI_Type_commit(columns)
  matrix = merge(5, 0, rank == 0)
  call MPI_Ibcast(matrix, 1, columns, 0, MPI_COMM_WORLD, request)
  call MPI_Wait(request, status)
  call expect(all(matrix(:, 1) == 5) .and. all(matrix(:, 3) == 5), "columns of a matrix")
  if (rank /= 0) call expect(all(matrix(:, 2) == 0), "the columns between")
  call MPI_Type_free(columns)

  call MPI_Get_address(values(10), address)
  call MPI_Type_create_hindexed(1, [20], [address], MPI_INTEGER, absolute)
  call MPI_Type_commit(absolute)
  values = merge(3, -1, rank == ranks - 1)
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, ranks - 1, MPI_COMM_WORLD)
  if (.not. MPI_ASYNC_PROTECTS_NONBLOCKING) call MPI_F_sync_reg(values)
  call expect(all(values(10:29) == 3), "MPI_Bcast at MPI_BOTTOM")
  if (rank /= ranks - 1) call expect(values(9) == -1 .and. values(30) == -1, "what is beside it")
  call MPI_Type_free(absolute)

  values = merge(4, -1, rank == 0)
  call MPI_Ibarrier(MPI_COMM_WORLD, requests(1))
  call MPI_Ibcast(values, length, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(2))
  call MPI_Ibarrier(MPI_COMM_WORLD, requests(3))
  do i = 1, 3
    call MPI_Waitany(3, requests, index, status)
  end do
  ! MPICH 4.0 returns indices from 0 here, so the requests show which have completed.
  call expect(all(requests == MPI_REQUEST_NULL), "null requests")
  call expect(all(values == 4), "MPI_Ibcast")

  values(1) = merge(6, -1, rank == 0)
  call MPI_Ibcast(values, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, request)
  ! Without a status, Open MPI 4.1 never reports completion.
  call MPI_Request_get_status(request, is_done, MPI_STATUS_IGNORE, error)
  call expect(error == MPI_SUCCESS, "the error of MPI_Request_get_status")
  is_done = .false.
  do while (.not. is_done)
    call MPI_Request_get_status(request, is_done, status)
  end do
  call MPI_Wait(request, status)
  call expect(values(1) == 6, "MPI_Request_get_status")

  values(1:2) = [rank, 1]
  if (rank == 0) then
    call MPI_Reduce(MPI_IN_PLACE, values, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
    call expect(values(1) == ranks * (ranks - 1) / 2 .and. values(2) == ranks, "MPI_Reduce")
  else
    call MPI_Reduce(values, values, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
    call expect(values(1) == rank .and. error == MPI_SUCCESS, "what MPI_Reduce reads")
  end if
  values(1:2 * ranks) = rank
  call MPI_Reduce_scatter_block(MPI_IN_PLACE, values, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call expect(values(2) == ranks * (ranks - 1) / 2, "MPI_Reduce_scatter_block")
  call MPI_Reduce_scatter([(i, i = 1, ranks)], values, [(1, i = 1, ranks)], MPI_INTEGER, MPI_MAX, &
    MPI_COMM_WORLD, error)
  call expect(values(1) == rank + 1 .and. error == MPI_SUCCESS, "MPI_Reduce_scatter")
  call MPI_Gather(2 * rank, 1, MPI_INTEGER, values, 1, MPI_INTEGER, 0, MPI_COMM_WORLD)
  if (rank == 0) call expect(all(values(1:ranks) == [(2 * i, i = 0, ranks - 1)]), "MPI_Gather")
  values(1:2) = [rank + 1, -1]
  call MPI_Exscan(values, values(2), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call expect(values(2) == merge(-1, rank * (rank + 1) / 2, rank == 0), "MPI_Exscan")
  call MPI_Scan(MPI_IN_PLACE, values, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  call expect(error == MPI_SUCCESS, "the error of MPI_Scan")
  call expect(values(1) == (rank + 1) * (rank + 2) / 2, "MPI_Scan in place")
  call MPI_Allgather(2 * rank, 1, MPI_INTEGER, values, 1, MPI_INTEGER, MPI_COMM_WORLD)
  call expect(all(values(1:ranks) == [(2 * i, i = 0, ranks - 1)]), "MPI_Allgather")
  values(1:ranks) = -1
  values(rank + 1) = 3 * rank
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, values, 1, MPI_INTEGER, MPI_COMM_WORLD)
  call expect(all(values(1:ranks) == [(3 * i, i = 0, ranks - 1)]), "MPI_Allgather in place")
  call move_parts()
  call start_reductions()
  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) print "(a)", "modern: ok"
  call MPI_Finalize()

contains

  ! Nonblocking, the second time in place.
  subroutine start_reductions()
    integer, asynchronous :: own(2), sums(2), at_root(2), all_of(ranks)

    own = [rank, 1]
    at_root = own
    call MPI_Iallreduce(own, sums, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
    if (rank == 0) then
      call MPI_Ireduce(MPI_IN_PLACE, at_root, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, &
        requests(2))
    else
      call MPI_Ireduce(own, at_root, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, requests(2))
    end if
    call MPI_Iallgather(own, 1, MPI_INTEGER, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, &
      requests(3), error)
    call expect(error == MPI_SUCCESS, "the error of MPI_Iallgather")
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
    call expect(all(sums == [ranks * (ranks - 1) / 2, ranks]), "MPI_Iallreduce")
    call expect(all(at_root == merge(sums, own, rank == 0)), "MPI_Ireduce")
    call expect(all(all_of == [(i, i = 0, ranks - 1)]), "MPI_Iallgather")
    sums = own
    all_of = -1
    all_of(rank + 1) = rank
    call MPI_Iallreduce(MPI_IN_PLACE, sums, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
    call MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INTEGER, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, &
      requests(1))
    call MPI_Wait(requests(1), status)
    call MPI_Wait(request, status)
    call expect(all(sums == [ranks * (ranks - 1) / 2, ranks]), "MPI_Iallreduce in place")
    call expect(all(all_of == [(i, i = 0, ranks - 1)]), "MPI_Iallgather in place")
  end subroutine

  ! Parts of rank + 1 numbers for each rank, each known to two ranks only.
  subroutine move_parts()
    integer :: sent(10 * ranks), came(10 * ranks), counts(ranks), places(ranks)

    counts = [(i, i = 1, ranks)]
    places = [(10 * i, i = 0, ranks - 1)]
    sent = [(100 * rank + i, i = 1, 10 * ranks)]
    came = -1
    if (rank == 0) then
      call MPI_Scatterv(sent, counts, places, MPI_INTEGER, MPI_IN_PLACE, 1, MPI_INTEGER, 0, &
        MPI_COMM_WORLD)
    else
      call MPI_Scatterv(sent, counts, places, MPI_INTEGER, came, rank + 1, MPI_INTEGER, 0, &
        MPI_COMM_WORLD, error)
      call expect(all(came(:rank + 1) == [(10 * rank + i, i = 1, rank + 1)]), "MPI_Scatterv")
      call expect(came(rank + 2) == -1 .and. error == MPI_SUCCESS, "what is behind it")
    end if
    call MPI_Alltoallv(sent, counts, places, MPI_INTEGER, came, [(rank + 1, i = 1, ranks)], &
      places, MPI_INTEGER, MPI_COMM_WORLD)
    call expect(came(10 * (ranks - 1) + 1) == 100 * (ranks - 1) + 10 * rank + 1, "MPI_Alltoallv")
  end subroutine

  subroutine expect(is_right, what)
    logical, intent(in) :: is_right
    character(*), intent(in) :: what

    if (is_right) return
    print "(2a)", "modern: wrong: ", what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
