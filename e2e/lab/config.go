package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeConfigs renders the files that the components read.
func (m *Member) writeConfigs() error {
	for file, cert := range map[string]string{
		"kubeconfig":                    "admin",
		"controller-manager.kubeconfig": "controller-manager",
		"scheduler.kubeconfig":          "scheduler",
		"kwok.kubeconfig":               "kwok",
		"metrics.kubeconfig":            "metrics-reader",
	} {
		if err := m.writeKubeconfig(file, cert); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", file, err)
		}
	}
	policy := m.opts.AuditPolicy
	if policy == "" {
		policy = defaultAuditPolicy
	}
	if err := writeFile(m.file("audit-policy.yaml"), []byte(policy), 0o644); err != nil {
		return fmt.Errorf("audit policy: %w", err)
	}
	if err := os.MkdirAll(m.file("logs"), 0o755); err != nil {
		return err
	}
	if err := m.writePodLog(); err != nil {
		return err
	}
	return m.writeKwokConfig()
}

func (m *Member) writeKubeconfig(file, cert string) error {
	config, err := m.kubeconfig(cert, m.Address())
	if err != nil {
		return err
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(m.file(file), data, 0o600)
}

// kubeconfig is self-contained, so that it can be handed to `join` or moved.
func (m *Member) kubeconfig(cert, address string) (*clientcmdapi.Config, error) {
	var pems [3][]byte
	for i, name := range []string{"ca.crt", cert + ".crt", cert + ".key"} {
		data, err := os.ReadFile(m.pki.path(name))
		if err != nil {
			return nil, err
		}
		pems[i] = data
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[m.opts.Name] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: pems[0]}
	config.AuthInfos[cert] = &clientcmdapi.AuthInfo{ClientCertificateData: pems[1], ClientKeyData: pems[2]}
	config.Contexts[m.opts.Name] = &clientcmdapi.Context{Cluster: m.opts.Name, AuthInfo: cert}
	config.CurrentContext = m.opts.Name
	return config, nil
}

// KubeconfigVia writes an admin's kubeconfig that reaches the member at another
// address (a Proxy's, say) and returns its path.
func (m *Member) KubeconfigVia(address string) (string, error) {
	config, err := m.kubeconfig("admin", address)
	if err != nil {
		return "", fmt.Errorf("kubeconfig via %s: %w", address, err)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("kubeconfig via %s: %w", address, err)
	}
	path := m.file("kubeconfig-via-" + strings.ReplaceAll(address, ":", "-"))
	return path, writeFile(path, data, 0o600)
}

// The product's identities in a member are service accounts of this namespace.
const defaultAuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  users: ["system:serviceaccount:isthmus-system:isthmus-read", "system:serviceaccount:isthmus-system:isthmus-apply"]
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
`

// podLogPath is what every container of the member "logs", in the CRI format.
// It has a folder of its own, because whoever follows it watches the folder.
func (m *Member) podLogPath() string { return m.file("pods/all.log") }

func (m *Member) writePodLog() error {
	if _, err := os.Stat(m.podLogPath()); err == nil {
		return nil
	}
	var lines bytes.Buffer
	for i := range 3 {
		fmt.Fprintln(&lines, criLine(time.Now(), fmt.Sprintf("hello %d from a container in cluster %s", i+1, m.opts.Name)))
	}
	if err := os.MkdirAll(filepath.Dir(m.podLogPath()), 0o755); err != nil {
		return err
	}
	return writeFile(m.podLogPath(), lines.Bytes(), 0o644)
}

func criLine(now time.Time, line string) string {
	return now.UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " stdout F " + line
}

// AppendLog adds a line to what every container of the member logs; those who
// follow a log or are attached see it at once.
func (m *Member) AppendLog(line string) error {
	f, err := os.OpenFile(m.podLogPath(), os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("append to the Pods' log: %w", err)
	}
	_, err = fmt.Fprintln(f, criLine(time.Now(), line))
	return errors.Join(err, f.Close())
}

// kwokOptions: the streams of Pods are the lab's own kubelet's.
const kwokOptions = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableDebuggingHandlers: false
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 16
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 4
  enablePodsOnNodeSyncListPager: true
`

// podReadyAgain does what a kubelet does when its node comes back: kwok's own
// stage makes only Pending Pods ready, so that after a member stood still for
// 40 s (or the machine was suspended) its Pods would stay unready for good.
const podReadyAgain = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-ready-again
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'DoesNotExist'
    - key: '.status.phase'
      operator: 'In'
      values:
      - 'Running'
    - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
      operator: 'In'
      values:
      - 'False'
    - key: '.status.conditions.[] | select( .type == "ContainersReady" ) | .status'
      operator: 'In'
      values:
      - 'True'
  delay:
    durationMilliseconds: 3000
  next:
    patches:
    - subresource: status
      root: status
      type: strategic
      template: |
        conditions:
        - type: Ready
          status: "True"
          lastTransitionTime: {{ Now | Quote }}
`

func (m *Member) writeKwokConfig() error {
	files, err := filepath.Glob(filepath.Join(m.set.StagesDir(), "*.yaml"))
	if err != nil {
		return fmt.Errorf("kwok config: %w", err)
	}
	slices.Sort(files)
	var config bytes.Buffer
	config.WriteString(kwokOptions)
	for _, file := range files {
		base := filepath.Base(file)
		isMetrics := base == "metrics-resource.yaml" || base == "usage-from-annotation.yaml"
		if isMetrics && !m.opts.Metrics {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("kwok config: %w", err)
		}
		config.WriteString("---\n")
		config.Write(data)
	}
	config.WriteString("---\n" + podReadyAgain)
	if err := writeFile(m.file("kwok.yaml"), config.Bytes(), 0o644); err != nil {
		return fmt.Errorf("kwok config: %w", err)
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("fake-%d", i) }

// node is a node as a kubelet would register it; kwok keeps it alive.
func node(i, pods int) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             *resource.NewQuantity(int64(pods), resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: nodeName(i),
			Annotations: map[string]string{
				"node.alpha.kubernetes.io/ttl":         "0",
				"kwok.x-k8s.io/node":                   "fake",
				"metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + nodeName(i) + "/metrics/resource",
			},
			Labels: map[string]string{
				corev1.LabelOSStable:            "linux",
				corev1.LabelArchStable:          "amd64",
				corev1.LabelHostname:            nodeName(i),
				"type":                          "kwok",
				"node-role.kubernetes.io/agent": "",
			},
		},
		Status: corev1.NodeStatus{
			Allocatable: resources, Capacity: resources,
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", OperatingSystem: "linux", OSImage: "fake",
				KubeletVersion:          "v1.37.2",
				ContainerRuntimeVersion: "containerd://2.0", KernelVersion: "6.1.0-kwok",
			},
		},
	}
}
