// Package bench measures the product beside a real kube-apiserver that holds
// the same Pods, in one run on one machine.
//
//	setup -> one plain cluster with all Pods        (the reference)
//	      -> m1, m2 with half of them each -> cluster-gateway -> endpoint
//	readers, watchers and writers of this process -> both
//	/proc/PID of the servers -> samples -> medians -> Result -> table, JSON
//
// CPU is that of the server processes alone, never of the clients, so that
// ratios hold on a machine that others use too.
package bench
