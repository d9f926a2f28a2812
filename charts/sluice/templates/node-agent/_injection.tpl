{{/*
The container that gives the agent's own container the driver by NRI and CDI, on nodes without NVIDIA's container runtime, and with
`auto` on each node that has both. Kubelet starts it first, and keeps it running, because it also has to be there when the agent's
container is created again.
*/}}
{{- define "sluice.ownDriver" -}}
- name: own-driver
  image: {{ include "sluice.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - node-agent
    - --own-driver
    {{- include "sluice.flag" (list "injection" .Values.injection) | nindent 4 }}
    # The port alone: the address is that of --http, which the process does not serve.
    - --health=9406
    {{- include "sluice.listenFlag" (dict "root" . "flag" "http" "default" 9400) | nindent 4 }}
    {{- include "sluice.hostPathFlags" . | nindent 4 }}
  env:
    - name: NODE_NAME
      valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
    - name: POD_UID
      valueFrom: { fieldRef: { fieldPath: metadata.uid } }
    {{- include "sluice.environment" (dict "root" . "component" "node-agent") | nindent 4 }}
  ports:
    - { name: own-driver, containerPort: 9406 }
  # The agent's container is created after the plugin is registered, or, with `auto`, after the runtime is known to have no NRI.
  startupProbe:
    httpGet: { path: /readyz, port: own-driver }
    periodSeconds: 1
    failureThreshold: 3600
  resources:
    # Enough to answer within the runtime's 2 s on a busy node.
    requests: { cpu: 10m, memory: 16Mi }
  # The socket and the specifications belong to root.
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
    seccompProfile: { type: RuntimeDefault }
    {{- if .Values.nodeAgent.seLinux.enabled }}
    seLinuxOptions: {{- include "sluice.seLinuxOptions" . | nindent 6 }}
    {{- end }}
  volumeMounts:
    {{- include "sluice.nriMounts" . | nindent 4 }}
    {{- include "sluice.cdiMounts" (dict "root" . "writes" false) | trim | nindent 4 }}
{{- end }}

{{/* The folder of the runtime's socket, and those of CDI specifications. */}}
{{- define "sluice.nriFolder" -}}
{{ .Values.nodeAgent.hostPaths.nri | default "/var/run/nri" }}
{{- end }}
{{- define "sluice.cdiFolders" -}}
{{ .Values.nodeAgent.hostPaths.cdi | default (list "/etc/cdi" "/var/run/cdi") | toJson }}
{{- end }}

{{- define "sluice.nriMounts" -}}
- { name: nri, mountPath: {{ include "sluice.nriFolder" . }}, readOnly: true }
{{- end }}

{{/* The folders of CDI specifications. include "sluice.cdiMounts" (dict "root" $ "writes" true): into the last one the agent writes. */}}
{{- define "sluice.cdiMounts" -}}
{{- $folders := include "sluice.cdiFolders" .root | fromJsonArray -}}
{{- range $index, $folder := $folders }}
- { name: cdi-{{ $index }}, mountPath: {{ $folder }}{{ if not (and $.writes (eq (add1 $index) (len $folders))) }}, readOnly: true{{ end }} }
{{- end }}
{{- end }}

{{/* Folders, because the runtime makes its socket anew at each start. */}}
{{- define "sluice.nriVolumes" -}}
- name: nri
  hostPath: { path: {{ include "sluice.nriFolder" . }}, type: DirectoryOrCreate }
{{- end }}

{{- define "sluice.cdiVolumes" -}}
{{- range $index, $folder := include "sluice.cdiFolders" . | fromJsonArray }}
- name: cdi-{{ $index }}
  hostPath: { path: {{ $folder }}, type: DirectoryOrCreate }
{{- end }}
{{- end }}
