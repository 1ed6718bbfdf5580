package gateway

type kindTable struct{}
