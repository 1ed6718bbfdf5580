package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// ErrNoPort says that no free port was found.
var ErrNoPort = errors.New("no free port between 20000 and 32000 on 127.0.0.1")

// freePort picks a port below the range from which the kernel takes the local
// ends of outgoing connections, so that none of those can take it before the
// listener is up.
func freePort(taken map[int]bool) (int, error) {
	for range 500 {
		port := 20000 + rand.IntN(12000)
		if !taken[port] && portFree(port) {
			taken[port] = true
			return port, nil
		}
	}
	return 0, ErrNoPort
}

// portComesFree gives whoever holds the port, likely an end of our own earlier
// process, a moment to let go.
func portComesFree(port int) bool {
	return waitUntil(time.Second, func() bool { return !portFree(port) })
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Ports are where the components of a member listen.
type Ports struct {
	APIServer int `json:"apiserver"`
	Etcd      int `json:"etcd"`
	EtcdPeer  int `json:"etcdPeer"`
	Kubelet   int `json:"kubelet"`
	Kwok      int `json:"kwok"`
	Metrics   int `json:"metrics"`
}

func (p *Ports) fields() map[string]*int {
	return map[string]*int{
		"kube-apiserver": &p.APIServer, "etcd": &p.Etcd, "etcd-peer": &p.EtcdPeer, "lab-kubelet": &p.Kubelet,
		"kwok": &p.Kwok, "metrics-server": &p.Metrics,
	}
}

// choose fills in ports that are unset and replaces those that a stranger has
// taken. running says which components are ours and listen already.
func (p *Ports) choose(running func(component string) bool, logf Logf) error {
	taken := map[int]bool{}
	for _, port := range p.fields() {
		taken[*port] = true
	}
	for name, port := range p.fields() {
		owner := name
		if name == "etcd-peer" {
			owner = "etcd"
		}
		if *port != 0 && (running(owner) || portComesFree(*port)) {
			continue
		}
		old := *port
		next, err := freePort(taken)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*port = next
		if old != 0 {
			logf("port %d of %s is taken by another program; using %d", old, name, next)
		}
	}
	return nil
}
