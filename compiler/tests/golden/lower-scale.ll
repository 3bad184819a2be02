; kernel "scale"
define void @tally_entry(ptr noalias readonly align 8 dereferenceable(48) %ctx) #0 {
entry:
  %args.at = getelementptr inbounds i8, ptr %ctx, i64 8
  %args = load ptr, ptr %args.at, align 8, !invariant.load !0
  %local.at = getelementptr inbounds i8, ptr %ctx, i64 16
  %local = load ptr, ptr %local.at, align 8, !invariant.load !0
  %scratch.at = getelementptr inbounds i8, ptr %ctx, i64 24
  %scratch = load ptr, ptr %scratch.at, align 8, !invariant.load !0
  %nx.launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %nx.group32.at = getelementptr inbounds i8, ptr %ctx, i64 32
  %nx.group32 = load i32, ptr %nx.group32.at, align 4, !invariant.load !0
  %nx.full32.at = getelementptr inbounds i8, ptr %nx.launch, i64 60
  %nx.full32 = load i32, ptr %nx.full32.at, align 4, !invariant.load !0
  %nx.global.at = getelementptr inbounds i8, ptr %nx.launch, i64 24
  %nx.global = load i64, ptr %nx.global.at, align 8, !invariant.load !0
  %nx.group = zext i32 %nx.group32 to i64
  %nx.full = zext i32 %nx.full32 to i64
  %nx.before = mul i64 %nx.group, %nx.full
  %nx.left = sub i64 %nx.global, %nx.before
  %nx = call i64 @llvm.umin.i64(i64 %nx.left, i64 %nx.full)
  %ny.launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %ny.group32.at = getelementptr inbounds i8, ptr %ctx, i64 36
  %ny.group32 = load i32, ptr %ny.group32.at, align 4, !invariant.load !0
  %ny.full32.at = getelementptr inbounds i8, ptr %ny.launch, i64 64
  %ny.full32 = load i32, ptr %ny.full32.at, align 4, !invariant.load !0
  %ny.global.at = getelementptr inbounds i8, ptr %ny.launch, i64 32
  %ny.global = load i64, ptr %ny.global.at, align 8, !invariant.load !0
  %ny.group = zext i32 %ny.group32 to i64
  %ny.full = zext i32 %ny.full32 to i64
  %ny.before = mul i64 %ny.group, %ny.full
  %ny.left = sub i64 %ny.global, %ny.before
  %ny = call i64 @llvm.umin.i64(i64 %ny.left, i64 %ny.full)
  %nz.launch = load ptr, ptr %ctx, align 8, !invariant.load !0
  %nz.group32.at = getelementptr inbounds i8, ptr %ctx, i64 40
  %nz.group32 = load i32, ptr %nz.group32.at, align 4, !invariant.load !0
  %nz.full32.at = getelementptr inbounds i8, ptr %nz.launch, i64 68
  %nz.full32 = load i32, ptr %nz.full32.at, align 4, !invariant.load !0
  %nz.global.at = getelementptr inbounds i8, ptr %nz.launch, i64 40
  %nz.global = load i64, ptr %nz.global.at, align 8, !invariant.load !0
  %nz.group = zext i32 %nz.group32 to i64
  %nz.full = zext i32 %nz.full32 to i64
  %nz.before = mul i64 %nz.group, %nz.full
  %nz.left = sub i64 %nz.global, %nz.before
  %nz = call i64 @llvm.umin.i64(i64 %nz.left, i64 %nz.full)
  %arg0.at = getelementptr inbounds i8, ptr %args, i64 0
  %arg0 = load ptr, ptr %arg0.at, align 8, !invariant.load !0
  %arg1.at = getelementptr inbounds i8, ptr %args, i64 8
  %arg1 = load float, ptr %arg1.at, align 4, !invariant.load !0
  %priv = getelementptr i8, ptr %scratch, i64 0
  br label %items
items:
  br label %z.loop
z.loop:
  %z = phi i64 [ 0, %items ], [ %z.next, %y.done ]
  br label %y.loop
y.loop:
  %y = phi i64 [ 0, %z.loop ], [ %y.next, %x.done ]
  br label %x.loop
x.loop:
  %x = phi i64 [ 0, %y.loop ], [ %x.next, %x.loop ]
  call void @f0(ptr %ctx, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %arg0, float %arg1)
  %x.next = add nuw nsw i64 %x, 1
  %x.last = icmp eq i64 %x.next, %nx
  br i1 %x.last, label %x.done, label %x.loop
x.done:
  %y.next = add nuw nsw i64 %y, 1
  %y.last = icmp eq i64 %y.next, %ny
  br i1 %y.last, label %y.done, label %y.loop
y.done:
  %z.next = add nuw nsw i64 %z, 1
  %z.last = icmp eq i64 %z.next, %nz
  br i1 %z.last, label %done, label %z.loop
done:
  ret void
}
attributes #0 = { nounwind "reciprocal-estimates"="!vec-divf" }

; scale
define internal void @f0(ptr noalias readonly align 8 dereferenceable(48) %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %priv, ptr %v0, float %v1) #0 {
entry:
  %t1 = getelementptr inbounds i8, ptr %ctx, i64 32
  %t2 = load i32, ptr %t1, align 4, !invariant.load !0
  %t3 = zext i32 %t2 to i64
  %t4 = load ptr, ptr %ctx, align 8, !invariant.load !0
  %t5 = getelementptr inbounds i8, ptr %t4, i64 60
  %t6 = load i32, ptr %t5, align 4, !invariant.load !0
  %t7 = zext i32 %t6 to i64
  %t8 = mul nuw nsw i64 %t3, %t7
  %t9 = add nuw nsw i64 %t8, %lx
  %t10 = load ptr, ptr %ctx, align 8, !invariant.load !0
  %t11 = getelementptr inbounds i8, ptr %t10, i64 0
  %t12 = load i64, ptr %t11, align 8, !invariant.load !0
  %t13 = add i64 %t12, %t9
  br label %bb0
bb0:
  %v6 = getelementptr inbounds [4 x i8], ptr %v0, i64 %t13
  %v7 = load float, ptr %v6, align 4
  %v8 = fmul float %v1, %v7
  store float %v8, ptr %v6, align 4
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)

!0 = !{}
!1 = !{i32 1}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.unroll.runtime.disable"}
