package lab

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
)

// defineComponents says how each process of the member is started.
func (m *Member) defineComponents() {
	m.reset()
	m.add("etcd", m.set.Path("etcd"), m.etcdFlags())
	m.add("kube-apiserver", filepath.Join(m.programs, "kube-apiserver"), m.apiserverFlags())
	m.add("kube-controller-manager", filepath.Join(m.programs, "kube-controller-manager"), m.controllerManagerFlags())
	m.add("kube-scheduler", filepath.Join(m.programs, "kube-scheduler"), m.schedulerFlags())
	m.add("kwok", m.set.Path("kwok"), m.kwokFlags())
	m.add("lab-kubelet", m.kubelet, m.kubeletFlags())
	if m.opts.Metrics {
		m.add("metrics-server", m.set.Path("metrics-server"), m.metricsFlags())
	}
}

func (m *Member) file(name string) string { return filepath.Join(m.opts.Dir, name) }

func (m *Member) etcdFlags() []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", m.ports.Etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", m.ports.EtcdPeer)
	return []string{
		"--name=" + m.opts.Name,
		"--data-dir=" + m.file("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + m.opts.Name + "=" + peer,
		"--quota-backend-bytes=" + strconv.Itoa(8<<30),
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
		// Members survive the death of their processes, not that of the machine.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func (m *Member) apiserverFlags() []string {
	flags := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", m.ports.Etcd),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(m.ports.APIServer),
		// A loopback address is no valid endpoint of the service "kubernetes".
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + m.pki.path("apiserver.crt"),
		"--tls-private-key-file=" + m.pki.path("apiserver.key"),
		"--client-ca-file=" + m.pki.path("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + m.pki.path("sa.pub"),
		"--service-account-signing-key-file=" + m.pki.path("sa.key"),
		"--requestheader-client-ca-file=" + m.pki.path("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + m.pki.path("front-proxy-client.crt"),
		"--proxy-client-key-file=" + m.pki.path("front-proxy-client.key"),
		"--kubelet-certificate-authority=" + m.pki.path("ca.crt"),
		"--kubelet-client-certificate=" + m.pki.path("kubelet-client.crt"),
		"--kubelet-client-key=" + m.pki.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file=" + m.file("audit-policy.yaml"),
		"--audit-log-path=" + m.AuditLog(),
		"--audit-log-maxsize=200", "--audit-log-maxbackup=3",
		"--max-requests-inflight=1600", "--max-mutating-requests-inflight=800",
		"--shutdown-delay-duration=0s",
		"--profiling=true",
	}
	return append(flags, m.opts.APIServerFlags...)
}

func (m *Member) controllerFlags(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + m.file(kubeconfig),
		"--leader-elect=false",
		// Whether they work shows in what they do; no port is spent on it.
		"--secure-port=0",
		"--kube-api-qps=" + strconv.Itoa(m.opts.QPS),
		"--kube-api-burst=" + strconv.Itoa(m.opts.Burst),
	}
}

func (m *Member) controllerManagerFlags() []string {
	return append(m.controllerFlags("controller-manager.kubeconfig"),
		"--service-account-private-key-file="+m.pki.path("sa.key"),
		"--root-ca-file="+m.pki.path("ca.crt"),
		"--cluster-signing-cert-file="+m.pki.path("ca.crt"),
		"--cluster-signing-key-file="+m.pki.path("ca.key"),
		"--use-service-account-credentials=true",
		"--cluster-name="+m.opts.Name,
	)
}

func (m *Member) schedulerFlags() []string {
	return m.controllerFlags("scheduler.kubeconfig")
}

func (m *Member) kwokFlags() []string {
	return []string{
		"--kubeconfig=" + m.file("kwok.kubeconfig"),
		"--config=" + m.file("kwok.yaml"),
		"--manage-all-nodes=true",
		"--node-ip=127.0.0.1",
		// Without it kwok empties the addresses of a node that was NotReady.
		"--node-name=lab",
		"--cidr=" + podCIDR(m.opts.Name),
		"--node-port=" + strconv.Itoa(m.ports.Kubelet),
		fmt.Sprintf("--server-address=127.0.0.1:%d", m.ports.Kwok),
		"--tls-cert-file=" + m.pki.path("kubelet.crt"),
		"--tls-private-key-file=" + m.pki.path("kubelet.key"),
		"--node-lease-duration-seconds=40",
		"--v=WARN",
	}
}

// kubeletFlags: the nodes lead to it, and it leads to kwok for their metrics.
func (m *Member) kubeletFlags() []string {
	return []string{
		"--cluster=" + m.opts.Name,
		"--dir=" + filepath.Dir(m.podLogPath()),
		fmt.Sprintf("--address=127.0.0.1:%d", m.ports.Kubelet),
		"--ca=" + m.pki.path("ca.crt"),
		"--tls-cert-file=" + m.pki.path("kubelet.crt"),
		"--tls-private-key-file=" + m.pki.path("kubelet.key"),
		"--apiserver=https://" + m.Address(),
		"--client-cert-file=" + m.pki.path("kwok.crt"),
		"--client-key-file=" + m.pki.path("kwok.key"),
		fmt.Sprintf("--upstream=https://127.0.0.1:%d", m.ports.Kwok),
	}
}

// podCIDR gives each member Pod addresses of its own, clear of the services'
// 10.96.0.0/16. Nothing listens on them.
func podCIDR(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return fmt.Sprintf("10.%d.0.0/16", 100+h.Sum32()%150)
}

func (m *Member) metricsFlags() []string {
	return []string{
		"--kubeconfig=" + m.file("metrics.kubeconfig"),
		"--authentication-kubeconfig=" + m.file("metrics.kubeconfig"),
		"--authorization-kubeconfig=" + m.file("metrics.kubeconfig"),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(m.ports.Metrics),
		"--tls-cert-file=" + m.pki.path("metrics-server.crt"),
		"--tls-private-key-file=" + m.pki.path("metrics-server.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-use-node-status-port",
		"--kubelet-certificate-authority=" + m.pki.path("ca.crt"),
		"--metric-resolution=10s", "--kubelet-request-timeout=5s",
	}
}
