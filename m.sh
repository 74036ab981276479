O=/work/main/target/release/omnes; L=rm$$; $O lab up 2 --name $L
run() { echo "== $1"; timeout 60 $O run -n 2 --lab $L --env OMNES_NIC=user -- $O bench bandwidth --sizes 1m,2m,4m --budget 4s --max-iters 100000000 >m.o 2>&1 & R=$!
 sleep 5.5; [ "$1" = mtu ] && { $O lab exec --name $L 0 -- ip link set eth0 mtu 1400; sleep 1; $O lab exec --name $L 0 -- ip link set eth0 mtu $M; ip=x; $O lab exec --name $L 0 -- ip link show eth0 | head -1; }
 wait $R; echo status $?; tail -4 m.o; }
$O lab exec --name $L 0 -- ip link show eth0 | head -1
M=$($O lab exec --name $L 0 -- cat /sys/class/net/eth0/mtu); echo mtu $M; run none; run mtu
$O lab down --name $L; date
