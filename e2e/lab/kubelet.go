package lab

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// leadNodes succeeds when the kubelet listens and every node of ours names its
// port: kwok writes the port once in a node's life, and a member that starts
// again may have to take another one.
func (m *Member) leadNodes(ctx context.Context, client kubernetes.Interface) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", m.ports.Kubelet))
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type=kwok"})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		if err := m.leadNode(ctx, client, &nodes.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Member) leadNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	if int(node.Status.DaemonEndpoints.KubeletEndpoint.Port) == m.ports.Kubelet {
		return nil
	}
	patch := fmt.Appendf(nil, `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, m.ports.Kubelet)
	_, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
